"""A copy of the package with a mutant in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from catalogue import PACKAGE, Mutant


@contextmanager
def package_with(mutant: Mutant | None) -> Iterator[Path]:
    """Inside, a fresh copy of `pellucid` (the folder of that name), mutated unless ``mutant`` is None."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        package = Path(folder) / "src" / "pellucid"
        shutil.copytree(PACKAGE, package)  # with the byte code that is there, which keeps the start short
        if mutant is not None:
            mutant.apply(package)
            for stale in (package / mutant.file).parent.glob(f"__pycache__/{Path(mutant.file).stem}.*"):
                stale.unlink()
        yield package
