"""Who may come in over TCP: just enough HTTP/1.1 to read one request and to answer it."""

from __future__ import annotations

import hmac
from typing import NamedTuple

LONGEST_REQUEST = 8_192
LONGEST_WAIT = 5.0
"""Seconds that a client has for its request."""

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}


class Asked(NamedTuple):
    """What a request comes to: 200 with the path that is asked for, or the status that refuses it."""

    status: int
    path: str = ""


def read_request(head: bytes, token: str) -> Asked:
    """Judge a request's head, all that comes before the empty line. The token is asked for before anything else."""
    line, *fields = head.split(b"\r\n")
    words = line.split()
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return Asked(400)
    given = b""
    for field in fields:
        name, _, value = field.partition(b":")
        if name.strip().lower() == b"authorization":
            given = value.strip()
    if not hmac.compare_digest(given, b"Bearer " + token.encode()):
        return Asked(401)
    if words[0] != b"GET":
        return Asked(405)
    if words[1] not in (b"/stream", b"/metrics"):
        return Asked(404)
    return Asked(200, words[1].decode())


def answer(status: int, kind: str = "text/plain; charset=utf-8", body: bytes | None = b"") -> bytes:
    """A response; with ``body`` None what follows goes on until the connection ends."""
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {kind}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    if status == 401:
        lines.append("WWW-Authenticate: Bearer")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")
