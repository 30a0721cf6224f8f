"""Running a script: as Python would, but with Pellucid standing in for vllm."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from pellucid.compat.maker import EngineMaker
from pellucid.compat.notes import Notes
from pellucid.compat.stand_in import standing_in
from pellucid.errors import ConfigError, PellucidError


def run(script: Path, args: Sequence[str], model: str | None = None) -> int:
    """Run ``script``, written for vLLM's offline API, unmodified; returns its exit status.

    ``args`` are its arguments; ``model`` takes the place of every model it names. stdout is the
    script's alone: what Pellucid has to remark goes to stderr, at the end where the script's numbers
    are no evidence.

    Raises `ConfigError` if there is no such script.
    """
    if not script.is_file():
        raise ConfigError(f"there is no script {script}; give the path of a Python file.")
    notes = Notes()
    try:
        with _as_main(script, args), notes.listening(), standing_in(EngineMaker(model, notes)):
            return _execute(str(script))
    finally:
        notes.close()


def _execute(script: str) -> int:
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return _status(end.code)
    except PellucidError as error:
        print(f"pellucid: {_line(error, script)}{error}", file=sys.stderr)
        return 1
    except Exception as error:
        traceback.print_exception(type(error), error, _from_script(error, script))
        return 1
    return 0


def _status(code: object) -> int:
    """What Python makes of ``sys.exit(code)``."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _from_script(error: BaseException, script: str) -> TracebackType | None:
    """The traceback from the script's first line on, without what started it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    return trace


def _line(error: BaseException, script: str) -> str:
    """Where in the script it happened: the innermost of its lines."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == script]
    return f"{script}, line {lines[-1]}: " if lines else ""


@contextmanager
def _as_main(script: Path, args: Sequence[str]) -> Iterator[None]:
    """``sys.argv`` and ``sys.path`` as if Python had been started with ``script``."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *args]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
