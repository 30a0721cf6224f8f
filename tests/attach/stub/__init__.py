"""A vLLM without a model: its engine core, scheduler, KV cache and processes are real, the arithmetic is not.

``LLM(distributed_executor_backend=StubExecutor, ...)`` starts in seconds from a folder without weights
(`write_model`), on every vLLM from 0.9.2 on and where its compiled kernels do not load. `executor` and `engine`
need vLLM; what this module names does not.
"""

from __future__ import annotations

from attach.stub.folder import write_model
from attach.stub.options import END_TOKEN, Options
from attach.stub.tokens import next_token

__all__ = ["END_TOKEN", "Options", "next_token", "write_model"]
