"""Judging greedy text by an independent model in one forward pass.

Our engine generates; the oracle then reads prompt and output at once. If its best token is ours at
every position, its own greedy generation would be the same text (by induction over positions), and
its logits can be compared with ours at every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from pellucid import LLM, SamplingParams
from pellucid.plan import StepPlan
from pellucid.runtime.runner import Runner

Oracle = Callable[[torch.Tensor], torch.Tensor]
"""Token ids [1, T] to logits [1, T, vocab]."""

TOLERANCE = 1e-3


def assert_same_text(llm: LLM, prompts: Sequence[list[int]], oracle: Oracle, length: int = 64) -> None:
    """All prompts together in ``llm``, ``length`` greedy tokens each, against ``oracle`` one by one."""
    logits = record_logits(llm)
    outputs = llm.generate(list(prompts), SamplingParams(temperature=0, max_tokens=length, ignore_eos=True))
    for prompt, output in zip(prompts, outputs, strict=True):
        tokens = output.outputs[0].token_ids
        assert len(tokens) == length
        with torch.inference_mode():
            theirs = oracle(torch.tensor([prompt + tokens[:-1]]))[0, len(prompt) - 1 :]
        assert theirs.argmax(-1).tolist() == tokens, f"prompt {prompt[:8]}…"
        worst = (theirs - torch.stack(logits[output.request_id])).abs().max().item()
        assert worst < TOLERANCE, f"prompt {prompt[:8]}…: logits differ by {worst}"


def record_logits(llm: LLM) -> dict[str, list[torch.Tensor]]:
    """Keep the logits [vocab] of every sampled token, by request, as ``llm`` runs."""
    kept: dict[str, list[torch.Tensor]] = {}
    names: dict[int, str] = {}

    def keep(plan: StepPlan, logits: torch.Tensor) -> None:
        names.update({admission.handle: admission.name for admission in plan.admitted})
        sampling = [handle for handle, samples in zip(plan.handles, plan.samples, strict=True) if samples]
        for handle, row in zip(sampling, logits, strict=True):
            kept.setdefault(names[handle], []).append(row.clone())

    runner = llm._core.executor
    assert isinstance(runner, Runner)
    runner._on_logits = keep
    return kept
