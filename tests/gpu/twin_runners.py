"""An executor that runs every plan twice, on `Runner` and on `DeviceRunner`, and sees that they agree."""

from __future__ import annotations

import torch

from pellucid.attention import KVStorage, ReferenceAttention, attention_backend
from pellucid.model import LoadedModel
from pellucid.plan import StepPlan, StepResult
from pellucid.runtime.device_runner import DeviceRunner
from pellucid.runtime.runner import Runner


class TwinRunners:
    """Two runners with a pool each. Tables are compared after every launch, tokens whenever they are collected."""

    def __init__(
        self, loaded: LoadedModel, num_blocks: int, block_size: int, eos_token_ids: tuple[int, ...], **limits: int
    ) -> None:
        config, model = loaded.config, loaded.model
        sizes = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self.storages = [KVStorage(*sizes, model.dtype, model.device) for _ in range(2)]
        on_gpu = model.device.type == "cuda"
        attention = attention_backend("triton") if on_gpu else ReferenceAttention()
        options = {"eos_token_ids": eos_token_ids, "seed": 3}
        self.plain = Runner(model, self.storages[0], attention, **options)
        self.device = DeviceRunner(model, self.storages[1], attention, **options, **limits)
        self.plans: list[StepPlan] = []

    def launch(self, plan: StepPlan) -> None:
        self.plain.launch(plan)
        self.device.launch(plan)
        self.plans.append(plan)
        for handle in plan.handles:
            self._compare(handle)

    def collect(self) -> StepResult:
        result = self.plain.collect()
        assert self.device.collect() == result
        return result

    def _compare(self, handle: int) -> None:
        """Block tables and known tokens are the same, and so are the counts that each keeps of them."""
        row, line = self.plain._rows[handle], self.device._lines[handle]
        tables, device = self.plain._tables, self.device._tables
        length = int(device.lengths[line])
        assert length == tables.length(row)
        assert device.blocks[line, :length].tolist() == tables.blocks[row.index, :length].tolist()
        assert int(self.device._lines.known[line]) == row.known
        assert device.tokens[line, : row.known].tolist() == tables.tokens[row.index, : row.known].tolist()

    def assert_same_pools(self) -> None:
        """K and V of every block but the reserved one, where padding is written."""
        plain, device = (storage.tensor[:, :, 1:] for storage in self.storages)
        torch.testing.assert_close(device, plain, rtol=1e-4, atol=1e-5)
