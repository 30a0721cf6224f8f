"""An executor that runs every plan on `DeviceRunner`, and again on `Runner`, and sees that they agree."""

from __future__ import annotations

import torch

from pellucid.attention import KVStorage, ReferenceAttention, attention_backend
from pellucid.model import LoadedModel
from pellucid.plan import StepPlan, StepResult
from pellucid.runtime.device_runner import DeviceRunner
from pellucid.runtime.runner import Runner


class TwinRunners:
    """Two runners with a pool each. The plain one follows after every step, or (not ``in_step``) when told to.

    It waits for the device, so only where it follows later do launches of the other really overlap.
    """

    def __init__(self, loaded: LoadedModel, num_blocks: int, block_size: int, *, in_step: bool, **limits: int) -> None:
        config, model = loaded.config, loaded.model
        sizes = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self.storages = [KVStorage(*sizes, model.dtype, model.device) for _ in range(2)]
        attention = attention_backend("triton") if model.device.type == "cuda" else ReferenceAttention()
        options = {"eos_token_ids": config.eos_token_ids, "seed": 3}
        self.plain = Runner(model, self.storages[0], attention, **options)
        self.device = DeviceRunner(model, self.storages[1], attention, **options, **limits)
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
        plain, device = (storage.tensor[:, :, 1:] for storage in self.storages)
        torch.testing.assert_close(device, plain, rtol=1e-4, atol=1e-5)

    def _compare_tables(self, handle: int) -> None:
        """Block tables and known tokens are the same, and so are the counts that each keeps of them."""
        row, line = self.plain._rows[handle], self.device._lines[handle]
        tables, device = self.plain._tables, self.device._tables
        length = int(device.lengths[line])
        assert length == tables.length(row)
        assert device.blocks[line, :length].tolist() == tables.blocks[row.index, :length].tolist()
        assert int(self.device._lines.known[line]) == row.known
        assert device.tokens[line, : row.known].tolist() == tables.tokens[row.index, : row.known].tolist()
