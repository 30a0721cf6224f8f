"""The modules that are ``vllm`` while a script runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

import pellucid
from pellucid.compat import llm
from pellucid.compat.maker import EngineMaker
from pellucid.compat.output import CompletionOutput, RequestOutput
from pellucid.compat.prompt import TextPrompt, TokensPrompt
from pellucid.compat.sampling import RequestOutputKind, SamplingParams
from pellucid.compat.uncovered import UncoveredAttribute, UncoveredModule, lacking

# The last vLLM whose order of re-use is that of our default policy with prefix caching off.
VERSION = f"0.23.0+pellucid.{pellucid.__version__}"


class StandIn(ModuleType):
    """One module. What it lacks is an error that names it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, loader=None, is_package=True)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> NoReturn:
        raise UncoveredAttribute(lacking(f"{self.__name__}.{name}", vars(self)))


class Frontier(MetaPathFinder):
    """Where the stand-in ends: ``import vllm.x`` and ``from vllm import x`` both come here for what it lacks."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        parent, _, _ = fullname.rpartition(".")
        if isinstance(module := sys.modules.get(parent), StandIn):
            raise UncoveredModule(lacking(fullname, vars(module)))


def contents(maker: EngineMaker) -> dict[str, dict[str, Any]]:
    """What is in each module. The two classes that make engines make them with ``maker``."""
    classes = {
        "LLM": type("LLM", (llm.LLM,), {"_maker": maker}),
        "LLMEngine": type("LLMEngine", (llm.LLMEngine,), {"_maker": maker}),
        "EngineArgs": llm.EngineArgs,
    }
    outputs = {"RequestOutput": RequestOutput, "CompletionOutput": CompletionOutput}
    prompts = {"TextPrompt": TextPrompt, "TokensPrompt": TokensPrompt}
    return {
        "vllm": {**classes, **outputs, **prompts, "SamplingParams": SamplingParams, "__version__": VERSION},
        "vllm.sampling_params": {"SamplingParams": SamplingParams, "RequestOutputKind": RequestOutputKind},
        "vllm.outputs": outputs,
        "vllm.inputs": prompts,
        "vllm.entrypoints": {},
        "vllm.entrypoints.llm": {"LLM": classes["LLM"]},
        "vllm.engine": {},
        "vllm.engine.arg_utils": {"EngineArgs": classes["EngineArgs"]},
        "vllm.engine.llm_engine": {"LLMEngine": classes["LLMEngine"]},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.llm_engine": {"LLMEngine": classes["LLMEngine"]},
    }


def modules(contents: Mapping[str, Mapping[str, Any]]) -> dict[str, ModuleType]:
    """A module for each entry, known to its parent; parents come first."""
    made: dict[str, ModuleType] = {}
    for name, names in contents.items():
        made[name] = module = StandIn(name)
        vars(module).update(names)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(made[parent], own, module)
    return made


@contextmanager
def standing_in(maker: EngineMaker) -> Iterator[None]:
    """``vllm`` is the stand-in, even where a real one is installed or imported; afterwards all is as before."""
    before = _withdraw()
    frontier = Frontier()
    sys.modules.update(modules(contents(maker)))
    sys.meta_path.insert(0, frontier)
    try:
        yield
    finally:
        sys.meta_path.remove(frontier)
        _withdraw()
        sys.modules.update(before)


def _withdraw() -> dict[str, ModuleType]:
    """Take every module of ``vllm`` out of ``sys.modules``."""
    names = [name for name in sys.modules if name == "vllm" or name.startswith("vllm.")]
    return {name: sys.modules.pop(name) for name in names}
