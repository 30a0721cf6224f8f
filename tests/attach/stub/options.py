"""What the stub is to do, told by environment variables: they reach every process that vLLM starts."""

from __future__ import annotations

import os
from dataclasses import dataclass

END_TOKEN = 2  # never sampled unless asked for: pass it in SamplingParams.stop_token_ids


@dataclass(frozen=True)
class Options:
    """The stub's options; `environment` is what to start a process with, `read` what was in this one's."""

    groups: tuple[int, ...] = (0,)
    """A KV-cache group each: the sliding window in tokens, 0 for full attention. ``(0, 64)`` is full and sliding."""
    asynchronous: bool = False
    """Schedule one step ahead, as vLLM does on a GPU; its CPU platform always turns that off. Needs 0.11.0."""
    end_after: int = 0
    """The output token, counted from 1, that is `END_TOKEN`; 0 is never."""
    delay: float = 0.0
    """Seconds that a step takes, at least."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PELLUCID_STUB_GROUPS": ",".join(map(str, self.groups)),
            "PELLUCID_STUB_ASYNCHRONOUS": str(int(self.asynchronous)),
            "PELLUCID_STUB_END_AFTER": str(self.end_after),
            "PELLUCID_STUB_DELAY": str(self.delay),
        }

    @classmethod
    def read(cls) -> Options:
        def value(name: str, default: str) -> str:
            return os.environ.get(f"PELLUCID_STUB_{name}", default)

        return cls(
            groups=tuple(map(int, value("GROUPS", "0").split(","))),
            asynchronous=value("ASYNCHRONOUS", "0") == "1",
            end_after=int(value("END_AFTER", "0")),
            delay=float(value("DELAY", "0")),
        )
