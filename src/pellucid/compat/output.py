"""``vllm.RequestOutput`` and ``vllm.CompletionOutput``: ours, and the fields that vLLM leaves None unless asked."""

from __future__ import annotations

from msgspec.structs import asdict

from pellucid.compat.uncovered import Part
from pellucid.engine import output


class CompletionOutput(output.CompletionOutput, Part, kw_only=True):
    _path = "vllm.CompletionOutput"
    cumulative_logprob: None = None
    logprobs: None = None
    lora_request: None = None


class RequestOutput(output.RequestOutput, Part, kw_only=True):
    _path = "vllm.RequestOutput"
    prompt_logprobs: None = None
    metrics: None = None
    lora_request: None = None


def theirs(request: output.RequestOutput) -> RequestOutput:
    """Our engine's ``request`` as a script written for vLLM expects it."""
    completions = [CompletionOutput(**asdict(completion)) for completion in request.outputs]
    return RequestOutput(**{**asdict(request), "outputs": completions})
