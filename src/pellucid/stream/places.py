"""Where engines that can be watched are found: a folder of this user, a socket for each of them."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import NamedTuple

from pellucid.errors import StreamError
from pellucid.stream.frames import Inbox
from pellucid.stream.messages import Watched

LONGEST_PATH = 103
"""Bytes that a socket's address holds on every system that has them."""


class Place(NamedTuple):
    """An engine and the socket on which it can be watched."""

    path: Path
    watched: Watched


def folder() -> Path:
    """This user's folder of sockets; it need not exist."""
    runtime = os.environ.get("PELLUCID_RUNTIME_DIR") or os.environ.get("XDG_RUNTIME_DIR") or "/tmp"
    return Path(runtime) / f"pellucid-{os.getuid()}"


def socket_path(pid: int, rank: int = 0) -> Path:
    """The socket of engine core ``rank`` in process ``pid``. Raises `StreamError` if no socket can have that path."""
    path = folder() / (f"{pid}-{rank}.sock" if rank else f"{pid}.sock")
    if (length := len(os.fsencode(path))) > LONGEST_PATH:
        raise StreamError(
            f"{path} has {length} bytes and a socket's path at most {LONGEST_PATH}; "
            "set PELLUCID_RUNTIME_DIR to a shorter folder, for the engine and for whoever watches it."
        )
    return path


def make_folder() -> Path:
    """The folder, made if need be, and nobody's but ours. Raises `StreamError`."""
    place = folder()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(place)
        place.chmod(0o700)
    except OSError as error:
        raise StreamError(
            f"{place} cannot be made ({error.strerror}); set PELLUCID_RUNTIME_DIR to a folder that can be written to."
        ) from error
    return place


def check_folder(place: Path) -> None:
    """Raise `StreamError` if somebody else could have put something at ``place``."""
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise StreamError(f"{place} is no folder but something else, a link perhaps; remove it.")
    if found.st_uid != os.getuid():
        raise StreamError(
            f"{place} belongs to user {found.st_uid} and not to you; set PELLUCID_RUNTIME_DIR to a folder of your own."
        )


def places(timeout: float = 2.0) -> list[Place]:
    """Every engine of this user that answers within ``timeout`` seconds, in order of its process's number.

    Sockets that dead processes left behind are removed. Raises `StreamError` for a folder that is not ours.
    """
    where = folder()
    if not where.exists():
        return []
    check_folder(where)
    found = []
    for path in where.glob("*.sock"):
        try:
            found.append(Place(path, _ask(path, timeout)))
        except ConnectionRefusedError:
            _remove_if_dead(path)
        except (OSError, StreamError):
            continue  # it went just now, or does not answer
    return sorted(found, key=lambda place: (place.watched.pid, place.watched.rank))


def engines(timeout: float = 2.0) -> list[Watched]:
    """Every engine of this user that can be watched now."""
    return [place.watched for place in places(timeout)]


def dial(path: Path, timeout: float) -> socket.socket:
    """A connection to the socket at ``path``. Raises ``OSError``."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def _ask(path: Path, timeout: float) -> Watched:
    with dial(path, timeout) as connection:
        return Inbox(connection, str(path)).hello(timeout).watched


def _remove_if_dead(path: Path) -> None:
    """Nobody listens at ``path``; that its process lives may mean that it is just about to."""
    pid = path.stem.partition("-")[0]
    if pid.isdecimal() and not _alive(int(pid)):
        path.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
