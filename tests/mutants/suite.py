"""The fast tests that need no model, run against whatever `pellucid` the import path gives: cheapest first.

    PYTHONPATH=COPY python suite.py COPY LOG

Every test's name goes to LOG when it starts, and once more behind FAILED if it fails, so that a run that hangs
still tells where. The exit status is pytest's: 0 if nothing noticed anything, 1 at the first failing test.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

import hypothesis
import pytest

TESTS = Path(__file__).parents[1]
FAILED = "failed "


def paths() -> list[Path]:
    """The tests to run, in order; those of single rooms of `kv` before whole engines under random traffic."""
    parts = [
        [TESTS / "parity" / "test_schedule.py"],
        sorted((TESTS / "kv").glob("test_*.py")),
        sorted((TESTS / "casebook").glob("test_*.py")),
        sorted((TESTS / "engine").glob("test_scheduler*.py")),
    ]
    whole = [path for part in parts for path in part]
    return sorted(whole, key=lambda path: path.stem.endswith("_machine"))


class Log:
    """A pytest plugin that writes line by line to an open file."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        print(nodeid, file=self._file)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            print(f"{FAILED}{report.nodeid}", file=self._file)


def main(copy: str, log: str) -> int:
    import pellucid

    if not Path(pellucid.__file__).is_relative_to(copy):
        raise SystemExit(f"pellucid comes from {pellucid.__file__}, not from {copy}: put that first on PYTHONPATH.")
    # One failing example is enough: making it small would take longer than finding it.
    hypothesis.settings.register_profile("any failure", phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate])
    hypothesis.settings.load_profile("any failure")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading them takes longer than most mutants live
    options = ["-x", "--noconftest", "-p", "no:cacheprovider", "-p", "no:warnings", "-m", "not slow and not model"]
    with Path(log).open("w", buffering=1) as file:
        return pytest.main([*options, *map(str, paths())], plugins=[Log(file)])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
