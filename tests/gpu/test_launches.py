"""What every kernel does that may start while the one before it still runs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

LAUNCHED = "tl.program_id(0)"


def kernels() -> dict[str, str]:
    """The source of every kernel of the package that is launched in the chain, by its name."""
    found = {}
    for room in ("attention", "ops", "runtime"):
        folder = importlib.import_module(f"pellucid.{room}").__path__
        for module in pkgutil.iter_modules(folder, f"pellucid.{room}."):
            if ".triton" not in module.name:
                continue
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, (JITFunction, InterpretedFunction)) and value.fn.__module__ == module.name:
                    source = inspect.getsource(value.fn)
                    if LAUNCHED in source and "PDL: tl.constexpr" in source:
                        found[name] = source
    return found


def test_every_kernel_waits_for_the_one_before_it() -> None:
    found = kernels()
    assert {"receive_kernel", "inputs_kernel", "product_kernel", "decode_kernel", "scores_kernel"} <= set(found)
    assert len(found) >= 14
    for name, source in found.items():
        assert source.count("await_input(PDL)") == 1, name
