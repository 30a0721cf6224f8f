"""The doors by which watchers come in: a socket of this user, and a TCP port for those who have the token."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from pellucid.errors import StreamError
from pellucid.stream.places import dial, make_folder, socket_path

SHORTEST_TOKEN = 16
BACKLOG = 64


def listen_locally(pid: int, rank: int) -> tuple[socket.socket, Path]:
    """A listening socket in this user's folder, and its path. Raises `StreamError`."""
    path = socket_path(pid, rank)
    make_folder()
    _clear(path)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The folder lets nobody else in, so nobody comes between these two; the umask is not touched, as
        # other threads of this process may be making files now.
        door.bind(str(path))
        path.chmod(0o600)
        door.listen(BACKLOG)
        door.setblocking(False)
    except OSError as error:
        door.close()
        raise StreamError(f"no socket can be opened at {path}: {error.strerror}.") from error
    return door, path


def _clear(path: Path) -> None:
    """Remove what a dead process of the same number left behind. Raises `StreamError` if somebody answers there."""
    try:
        dial(path, timeout=1.0).close()
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return
    except OSError as error:
        raise StreamError(f"{path} is in the way: {error.strerror or error}; remove it.") from error
    raise StreamError(f"another engine can be watched at {path} already; give this one another rank.")


def parse_address(listen: str, token: str | None) -> tuple[str, int]:
    """The host and port of ``listen``. Raises `StreamError` if it is no address, or without a token worth the name."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or not int(port) < 65536:
        raise StreamError(f"{listen!r} is no address to listen at; write host:port, for example 127.0.0.1:8090.")
    if len(token or "") < SHORTEST_TOKEN:
        raise StreamError(
            f"watching over TCP needs a token of at least {SHORTEST_TOKEN} characters in PELLUCID_TOKEN, "
            f"and it has {len(token or '')}; nothing was opened."
        )
    return host.strip("[]"), int(port)


def listen_on(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises `StreamError`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        door = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise StreamError(f"nothing can listen at {host}:{port}: {error.strerror or error}.") from error
    door.setblocking(False)
    return door


def is_ours(connection: socket.socket) -> bool:
    """Whether this user, or root, is at the other end, as far as the system can say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # then the folder's mode is what keeps others out
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return uid in (os.getuid(), 0)
