"""``vllm`` is the stand-in while a script runs, and only then; what it lacks is named."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from pellucid import compat


def test_every_covered_name_can_be_imported(play: Any) -> None:
    ran = play(
        """
        import vllm
        import vllm.sampling_params as sp
        from vllm import LLM, CompletionOutput, EngineArgs, LLMEngine, RequestOutput, SamplingParams, TextPrompt
        from vllm.engine.arg_utils import EngineArgs as A
        from vllm.engine.llm_engine import LLMEngine as E0
        from vllm.entrypoints.llm import LLM as L
        from vllm.inputs import TextPrompt, TokensPrompt
        from vllm.outputs import CompletionOutput as C, RequestOutput as R
        from vllm.sampling_params import RequestOutputKind, SamplingParams as S
        from vllm.v1.engine.llm_engine import LLMEngine as E
        same = (A is EngineArgs, E is E0 is LLMEngine, L is LLM, C is CompletionOutput, R is RequestOutput,
                S is SamplingParams is sp.SamplingParams is vllm.sampling_params.SamplingParams)
        print(same, TokensPrompt(prompt_token_ids=[1]), isinstance(vllm.__version__, str))
        """
    )
    assert ran == (0, f"{(True,) * 6} {{'prompt_token_ids': [1]}} True\n", "")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("import vllm.utils", "vllm.utils"),
        ("from vllm.model_executor.models import ModelRegistry", "vllm.model_executor"),
        ("from vllm import AsyncLLMEngine", "vllm.AsyncLLMEngine"),
        ("from vllm.sampling_params import GuidedDecodingParams", "vllm.sampling_params.GuidedDecodingParams"),
        ("import vllm; vllm.PoolingParams", "vllm.PoolingParams"),
        ("import vllm.entrypoints; vllm.entrypoints.openai", "vllm.entrypoints.openai"),
    ],
)
def test_what_it_lacks_is_named_in_one_sentence(play: Any, line: str, name: str) -> None:
    ran = play(line)
    assert ran.status == 1
    assert f"line 1: {name} is not covered by `pellucid run`; covered there: " in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_script_that_asks_first_gets_an_honest_no(play: Any) -> None:
    ran = play(
        """
        import vllm
        print(hasattr(vllm, "PoolingParams"), getattr(vllm.SamplingParams(), "stop_strings", "none"))
        try:
            from vllm.lora.request import LoRARequest
        except ImportError:
            print("without LoRA")
        """
    )
    assert ran == (0, "False none\nwithout LoRA\n", "")


def test_a_real_vllm_is_hidden_meanwhile_and_untouched_afterwards(play: Any, monkeypatch: Any) -> None:
    real, real_inputs = ModuleType("vllm"), ModuleType("vllm.inputs")
    monkeypatch.setitem(sys.modules, "vllm", real)
    monkeypatch.setitem(sys.modules, "vllm.inputs", real_inputs)
    finders, counter = list(sys.meta_path), torch.cuda.memory_allocated
    ran = play("import vllm, vllm.inputs; print('pellucid' in vllm.__version__, vllm.inputs.TokensPrompt.__name__)")
    assert ran.out == "True TokensPrompt\n"
    assert {name: module for name, module in sys.modules.items() if name.split(".")[0] == "vllm"} == {
        "vllm": real,
        "vllm.inputs": real_inputs,
    }
    assert (sys.meta_path, torch.cuda.memory_allocated) == (finders, counter)


def test_without_a_vllm_there_is_none_afterwards_even_if_the_script_fails(play: Any) -> None:
    assert play("import vllm; raise RuntimeError('on purpose')").status == 1
    assert not [name for name in sys.modules if name.split(".")[0] == "vllm"]
    with pytest.raises(ModuleNotFoundError):
        __import__("vllm.sampling_params")


def test_the_public_name_is_run() -> None:
    assert compat.__all__ == ["run"]
