"""What a scheduler is told once, checked before anything is allocated."""

from __future__ import annotations

from msgspec import Struct

from pellucid.errors import ConfigError

POLICIES = ("fcfs", "priority")


class SchedulerConfig(Struct, frozen=True, kw_only=True):
    """Limits and rules of scheduling, under vLLM's names.

    ``max_num_batched_tokens`` is the token budget of one step, ``max_num_seqs`` the most requests
    that run at once. ``watermark`` is the share of the pool's blocks that admission leaves free
    while anything runs. ``vocab_size`` None leaves token ids unchecked from above (no model).

    Raises `ConfigError` for a value that cannot work.
    """

    max_model_len: int
    max_num_seqs: int = 128
    max_num_batched_tokens: int = 2048
    scheduling_policy: str = "fcfs"
    watermark: float = 0.0
    eos_token_ids: tuple[int, ...] = ()
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        if self.scheduling_policy not in POLICIES:
            raise ConfigError(
                f"scheduling_policy {self.scheduling_policy!r} is not known; choose one of {', '.join(POLICIES)}."
            )
        if self.max_model_len < 2:
            raise ConfigError(
                f"max_model_len must leave room for a prompt and a token, so 2 or more, not {self.max_model_len}."
            )
        if self.max_num_seqs < 1:
            raise ConfigError(f"max_num_seqs must be at least 1, not {self.max_num_seqs}.")
        if self.max_num_batched_tokens < 1:
            raise ConfigError(f"max_num_batched_tokens must be at least 1, not {self.max_num_batched_tokens}.")
        if not 0 <= self.watermark < 1:
            raise ConfigError(f"watermark must be a share of the pool in [0, 1), not {self.watermark}.")
