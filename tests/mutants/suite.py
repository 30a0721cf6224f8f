"""The fast tests that need no model, run against whatever `pellucid` the import path gives.

    PYTHONPATH=COPY python suite.py COPY LOG NOUN

First come the tests of NOUN, the name of a source file, and the recorded vLLM runs; if they notice nothing, the rest,
whole engines under random traffic last. Every test's name goes to LOG when it starts, and once more behind FAILED if
it fails. The exit status is pytest's: 0 if nothing noticed anything, 1 at the first failing test. A test that takes
longer than the limit ends the process by SIGALRM.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import Phase, settings

HERE = Path(__file__).parent
TESTS = HERE.parent
FAILED = "failed "
LIMIT_S = 20  # many times what the slowest of these tests takes


def paths() -> list[Path]:
    found = [TESTS / "parity" / "test_schedule.py"]
    for pattern in ("kv/test_*.py", "mutants/test_*.py", "casebook/test_*.py", "engine/test_scheduler*.py"):
        found += sorted(TESTS.glob(pattern))
    return sorted((path for path in found if path != HERE / "test_catalogue.py"), key=_is_machine)


def stages(noun: str) -> tuple[list[Path], list[Path]]:
    """What to run first, and what if that notices nothing."""
    tests = paths()
    first = [path for path in tests if path.stem == f"test_{noun}"] + tests[:1]
    return first, [path for path in tests if path not in first]


def _is_machine(path: Path) -> bool:
    return path.stem.endswith("_machine")


class Log:
    """A pytest plugin that writes line by line to an open file."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        print(nodeid, file=self._file)
        signal.alarm(LIMIT_S)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            print(f"{FAILED}{report.nodeid}", file=self._file)


def _stop_at_any_failing_example() -> None:
    """Making it small would take longer than finding it."""
    sys.path.insert(0, str(TESTS))
    import model_free

    examples = model_free.examples
    phases = [Phase.explicit, Phase.generate]
    model_free.examples = lambda *count, **steps: settings(examples(*count, **steps), phases=phases)


def main(copy: str, log: str, noun: str) -> int:
    import pellucid

    if not Path(pellucid.__file__).is_relative_to(copy):
        raise SystemExit(f"pellucid comes from {pellucid.__file__}, not from {copy}: put that first on PYTHONPATH.")
    _stop_at_any_failing_example()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading them takes longer than most mutants live
    options = ["-x", "--noconftest", "-p", "no:cacheprovider", "-p", "no:warnings", "-m", "not slow and not model"]
    with Path(log).open("w", buffering=1) as file:
        for stage in stages(noun):
            status = pytest.main([*options, *map(str, stage)], plugins=[Log(file)])
            if status != pytest.ExitCode.OK:
                return status
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
