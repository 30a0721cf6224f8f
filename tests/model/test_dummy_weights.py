"""Made-up weights: the same everywhere on a CPU, and drawn on the device on any other."""

from __future__ import annotations

import hashlib
import math

import torch

from pellucid.model import find
from pellucid.model.llama import Model, tensor_shapes
from pellucid.model.tiny import CONFIG
from pellucid.model.weights import DeviceWeights, RandomWeights, dummy_weights
from pellucid.ops.plain import PlainOps

SHAPES = tensor_shapes(CONFIG)


def test_on_a_cpu_they_are_those_of_the_tiny_model() -> None:
    weights, tiny = dummy_weights(SHAPES, 3, torch.device("cpu")), find("tiny", seed=3).weights()
    digest = hashlib.sha256()
    for name, shape in SHAPES.items():
        ours, theirs = torch.empty(shape), torch.empty(shape)
        weights.copy_to(name, ours)
        tiny.copy_to(name, theirs)
        assert torch.equal(ours, theirs), name
        digest.update(ours.numpy().tobytes())
    assert digest.hexdigest() == "aa742c4f5016aba726031ca1c5eb20f0c09d3bf4b4f70a289564168249eeaff9"


def test_on_another_device_they_are_of_the_same_size_and_come_again() -> None:
    assert type(dummy_weights(SHAPES, 3, torch.device("cuda"))) is DeviceWeights
    there, here = DeviceWeights(SHAPES, 3), RandomWeights(SHAPES, 3)
    for name, shape in SHAPES.items():
        first, again, other = (torch.empty(shape, dtype=torch.bfloat16) for _ in range(3))
        there.copy_to(name, first)
        there.copy_to(name, again)
        here.copy_to(name, other)
        assert torch.equal(first, again), name
        if len(shape) == 1:
            assert torch.equal(first, other), name
        else:
            spread = float(other.float().std())
            assert math.isclose(float(first.float().std()), spread, rel_tol=0.05), name
            assert abs(float(first.float().mean())) < 4 * spread / math.sqrt(first.numel()), name


def test_tensors_and_seeds_do_not_repeat_each_other() -> None:
    drawn = torch.empty(5, 64, 64)
    for out, seed, name in zip(drawn, (1, 1, 1, 2, 2), ("a.q.w", "b.q.w", "c.q.w", "a.q.w", "b.q.w"), strict=True):
        DeviceWeights({}, seed).copy_to(name, out)
    assert torch.corrcoef(drawn.flatten(1)).fill_diagonal_(0).abs().max() < 0.1


def test_a_model_of_them_is_finite_in_bfloat16() -> None:
    model = Model(CONFIG, DeviceWeights(SHAPES, 1), PlainOps(torch.bfloat16), torch.device("cpu"))
    scores = model.logits(torch.ones(1, CONFIG.hidden_size, dtype=torch.bfloat16))
    assert scores.isfinite().all()
    assert scores.std() > 0
