"""I13: the same requests, forced tokens and scheduling mode give one journal, on the card, on the CPU and in neither.

On both, the tokens are forced by way of the model: it computes all of it, and on the card in its graphs.
"""

from __future__ import annotations

import contextlib
import random

import pytest
from twin_runners import Twins, tiny_twins

from pellucid.attention import KVStorage, ReferenceAttention, attention_backend
from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.scheduler import Scheduler
from pellucid.errors import MoveRefused
from pellucid.kv import acts
from pellucid.kv.journal import Journal, first_difference
from pellucid.kv.manager import KVManager
from pellucid.model import LoadedModel
from pellucid.plan import Request, SamplingParams
from pellucid.runtime.device_runner import DeviceRunner
from pellucid.runtime.dictated import DictatedModel, Dictation, Runs
from pellucid.runtime.forced import ForcedRunner
from pellucid.runtime.runner import Runner

BLOCK, NUM_BLOCKS, LONGEST_OUTPUT = 4, 22, 14
LIMITS = {"max_num_seqs": 4, "max_num_batched_tokens": 20, "max_model_len": 80}
OUTPUTS = {f"R{number}": [7 + (number * index) % 240 for index in range(LONGEST_OUTPUT)] for number in range(9)}


@pytest.fixture(scope="module")
def tiny() -> Twins:
    return tiny_twins()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_forced_tokens_give_the_same_journal(tiny: Twins, asynchronous: bool) -> None:
    simulated = journal(tiny.plain, ForcedRunner(OUTPUTS), asynchronous)
    on_cpu = journal(tiny.plain, plain(tiny.plain), asynchronous)
    on_device = journal(tiny.plain, device(tiny.device), asynchronous)
    assert first_difference(on_cpu, on_device) is None
    assert first_difference(simulated, on_device) is None
    happened = {type(act) for act in on_device}
    assert happened >= {acts.Share, acts.Evict, acts.Move, acts.Preempt}
    assert (acts.Unfence in happened) == asynchronous
    assert any(act.reason == "abort" for act in on_device if isinstance(act, acts.Close))


def journal(loaded: LoadedModel, executor: Runs, asynchronous: bool) -> Journal:
    """Requests that come, go, share, are aborted and moved, the same every time as long as the engine does the same."""
    rng, coming = random.Random(5), requests(random.Random(6))
    config = SchedulerConfig(**LIMITS, eos_token_ids=(), vocab_size=loaded.config.vocab_size)
    kv = KVManager(NUM_BLOCKS, BLOCK, journal_capacity=None)
    core = EngineCore(Scheduler(kv, config), executor, asynchronous=asynchronous)
    while coming or core.has_unfinished_requests():
        while coming and rng.random() < 0.5:
            core.add(coming.pop())
        if (running := core.scheduler.running) and rng.random() < 0.6:
            with contextlib.suppress(MoveRefused):
                core.move(rng.choice(kv.table(rng.choice(running).name)), rng.randrange(1, NUM_BLOCKS))
        if running and rng.random() < 0.04:
            core.abort(rng.choice(running).name)
        core.step()
    return kv.journal


def requests(rng: random.Random) -> list[Request]:
    common = [rng.randrange(256) for _ in range(40)]
    made = []
    for name in OUTPUTS:
        prompt = common[: rng.choice((0, 9, 24, 40))] + [rng.randrange(256) for _ in range(rng.randint(1, 20))]
        sampling = SamplingParams(temperature=rng.choice((0, 0.8)), max_tokens=rng.randint(1, LONGEST_OUTPUT))
        made.append(Request(name=name, prompt=tuple(prompt), sampling=sampling))
    return made


def plain(loaded: LoadedModel) -> Dictation:
    model = DictatedModel(loaded.model, LIMITS["max_num_seqs"])
    runner = Runner(model, storage(loaded), ReferenceAttention(), compiled_sampling=False)
    return Dictation(runner, model, OUTPUTS, every_row=False)


def device(loaded: LoadedModel) -> Dictation:
    place, model = loaded.model.device, DictatedModel(loaded.model, LIMITS["max_num_seqs"])
    attention = attention_backend("auto", place) if place.type == "cuda" else ReferenceAttention()
    return Dictation(DeviceRunner(model, storage(loaded), attention, **LIMITS), model, OUTPUTS, every_row=True)


def storage(loaded: LoadedModel) -> KVStorage:
    config, model = loaded.config, loaded.model
    return KVStorage(
        config.num_layers, NUM_BLOCKS, BLOCK, config.num_kv_heads, config.head_dim, model.dtype, model.device
    )
