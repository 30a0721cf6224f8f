"""Other programs, started for their figures: the JSON object they print last, and starting them from disk."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SECONDS = 900


class Failed(Exception):
    """A program ended without figures."""


def last_line(command: list[str], environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The JSON object that ``command`` prints as its last line.

    Raises `Failed`, with the last thing that it said, for an exit status other than 0, or if it takes
    longer than `SECONDS`.
    """
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"not ready after {SECONDS} s") from None
    except OSError as error:
        raise Failed(str(error)) from None
    if done.returncode:
        raise Failed((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def drop_from_memory(python: str, *models: str) -> None:
    """Ask the system to forget its copies of the files that an engine starts from.

    They are the libraries of the interpreter ``python``, Pellucid's source, and ``models``, which are files
    or folders (others are passed over). This needs no rights; files that another process has mapped stay.
    Without posix_fadvise (macOS) nothing happens.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    os.sync()  # what has yet to be written would stay too
    for path in _files([*_libraries(python), str(Path(__file__).parents[1] / "src"), *models]):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _libraries(python: str) -> list[str]:
    kinds = "('stdlib', 'purelib', 'platlib')"
    code = f"import json, sysconfig as s; print(json.dumps({{'paths': [s.get_path(kind) for kind in {kinds}]}}))"
    return last_line([python, "-c", code])["paths"]


def _files(roots: list[str]) -> Iterator[str]:
    for root in dict.fromkeys(roots):
        if os.path.isfile(root):
            yield root
        for folder, _, names in os.walk(root):
            yield from (os.path.join(folder, name) for name in names)
