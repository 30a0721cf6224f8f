"""Which engine cores are meant: by what was written on the command line, or because there are no others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pellucid.errors import ConfigError
from pellucid.stream.messages import Hello
from pellucid.stream.places import Place, places
from pellucid.stream.reader import connect
from pellucid.stream.recording import Recorder
from pellucid.watch.feed import Feed

HELP = "a process id, a socket or http://host:port (the engine of this user that is there, with all its ranks)"


def feeds(targets: Sequence[str], record: Path | None, stack: ExitStack) -> list[Feed]:
    """A feed of each core that ``targets`` name, with a picture to show; closed by ``stack``.

    No target means the only engine there is. Raises `StreamError` if there is none, or several; `ConfigError` if
    there are several cores to ``record`` or the file cannot be written.
    """
    found = [stack.enter_context(connect(core)) for core in _cores(targets)]
    if record and len(found) > 1:
        raise ConfigError(f"--record writes one engine core to a file, and there are {len(found)}; name one of them.")
    result = []
    for reader in found:
        recorder = _recorder(record, reader.hello, stack) if record else None
        feed = Feed(reader, recorder)
        stack.callback(feed.stop)
        feed.wait_for_picture()
        result.append(feed)
    return result


def _cores(targets: Sequence[str]) -> list[str | Path | None]:
    """What to connect to: a process id becomes the sockets of all its cores."""
    if not targets:
        return _only_engine(places())
    cores: list[str | Path | None] = []
    for target in targets:
        paths = [place.path for place in places() if str(place.watched.pid) == target] if target.isdecimal() else []
        cores += paths or [target]
    return cores


def _only_engine(found: Sequence[Place]) -> list[str | Path | None]:
    """The sockets of all its cores: data-parallel ones have the same model and each a rank of its own."""
    names = {(place.watched.engine, place.watched.model) for place in found}
    if len(names) == 1 and len({place.watched.rank for place in found}) == len(found):
        return [place.path for place in sorted(found, key=lambda place: place.watched.rank)]
    return [None]  # `connect` says what there is instead


def _recorder(path: Path, hello: Hello, stack: ExitStack) -> Recorder:
    try:
        recorder = Recorder(path, hello)
    except OSError as error:
        raise ConfigError(f"--record {path} cannot be written: {error.strerror}.") from error
    stack.callback(recorder.close)
    return recorder
