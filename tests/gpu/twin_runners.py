"""An executor that runs every plan on `DeviceRunner`, and again on `Runner`, and sees that they agree."""

from __future__ import annotations

from typing import NamedTuple

import torch

from pellucid.attention import KVStorage, ReferenceAttention, attention_backend
from pellucid.model import LoadedModel, load
from pellucid.plan import StepPlan, StepResult
from pellucid.runtime.device_runner import DeviceRunner
from pellucid.runtime.runner import Runner

ROUNDING = {"rtol": 1e-4, "atol": 1e-4}
"""Of logits and of K and V, all about 1: the card adds up in another order, in float32 as well."""


class Twins(NamedTuple):
    """The same weights for both runners, in float32."""

    plain: LoadedModel
    device: LoadedModel


def tiny_twins() -> Twins:
    """In plain torch on the CPU, and on the card in Triton if there is one.

    Without a card they are one and the same: in Triton's interpreter every step of the model would take a second.
    """
    plain = load("tiny", dtype="float32", kernels="torch")
    return Twins(plain, load("tiny", dtype="float32", device="cuda") if torch.cuda.is_available() else plain)


class TwinRunners:
    """Two runners with a pool each. The plain one follows after every step, or (not ``in_step``) when told to.

    It keeps the host busy, so only where it follows later do launches of the other really overlap. Both must sample
    the same tokens: the seeds of the tests are fixed, and in float32 no two tokens are so close there that another
    order of adding up would decide between them.
    """

    def __init__(self, twins: Twins, num_blocks: int, block_size: int, *, in_step: bool, **limits: int) -> None:
        config = twins.plain.config
        sizes = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self.storages = [KVStorage(*sizes, loaded.model.dtype, loaded.model.device) for loaded in twins]
        plain, device = (loaded.model for loaded in twins)
        attention = attention_backend("auto", device.device) if device.device.type == "cuda" else ReferenceAttention()
        options = {"eos_token_ids": config.eos_token_ids, "seed": 3}
        self.plain = Runner(plain, self.storages[0], ReferenceAttention(), **options, compiled_sampling=False)
        self.device = DeviceRunner(device, self.storages[1], attention, **options, **limits)
        self.plans: list[StepPlan] = []
        self.results: list[StepResult] = []
        self._in_step = in_step
        self._followed = 0

    def launch(self, plan: StepPlan) -> None:
        self.device.launch(plan)
        self.plans.append(plan)

    def collect(self) -> StepResult:
        self.results.append(self.device.collect())
        if self._in_step:
            self.follow()
            for handle in self.plans[-1].handles:
                self._compare_tables(handle)
        return self.results[-1]

    def follow(self) -> None:
        """Run what the plain runner has not run yet: it samples the same tokens."""
        for plan, result in zip(self.plans[self._followed :], self.results[self._followed :], strict=True):
            self.plain.launch(plan)
            assert self.plain.collect() == result
        self._followed = len(self.plans)

    def assert_same_pools(self) -> None:
        """K and V of every block but the reserved one, where padding is written."""
        plain, device = (storage.tensor[:, :, 1:].cpu() for storage in self.storages)
        torch.testing.assert_close(device, plain, **ROUNDING)

    def _compare_tables(self, handle: int) -> None:
        """Block tables and known tokens are the same, and so are the counts that each keeps of them."""
        row, line = self.plain._rows[handle], self.device._lines[handle]
        tables, device = self.plain._tables, self.device._tables
        length = int(device.lengths[line])
        assert length == tables.length(row)
        assert device.blocks[line, :length].tolist() == tables.blocks[row.index, :length].tolist()
        assert int(self.device._lines.known[line]) == row.known
        assert device.tokens[line, : row.known].tolist() == tables.tokens[row.index, : row.known].tolist()
