"""The numbers of a snapshot, as Prometheus reads them."""

from __future__ import annotations

import random
import re

import msgspec

from pellucid.stream.metrics import exposition
from watched_engine import ForcedEngine

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?\d+)')


def parse(text: str) -> dict[str, int]:
    """Samples by name and labels; every family is described and typed before its samples, and only once."""
    samples: dict[str, int] = {}
    family = ""
    described: list[str] = []
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in described
            described.append(family)
        elif line.startswith("# TYPE "):
            assert line.split()[2] == family
            assert line.split()[3] == ("counter" if family.endswith("_total") else "gauge")
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] == family
            samples[f"{found[1]}{{{found[2] or ''}}}"] = int(found[3])
    return samples


def test_every_number_is_the_snapshots(engine: ForcedEngine) -> None:
    engine.load(300, random.Random(1))
    snapshot = engine.kv.snapshot()
    samples = parse(exposition(snapshot, violations=2))
    pool = snapshot.pool
    for state in ("reserved", "held", "cached", "free", "fenced"):
        assert samples[f'pellucid_blocks{{pool="kv",state="{state}"}}'] == pool.count(state)  # type: ignore[arg-type]
    assert samples['pellucid_blocks_size{pool="kv"}'] == 60
    assert samples['pellucid_blocks_usable{pool="kv"}'] == 59
    statuses = [request.status for request in snapshot.requests]
    for status in ("running", "waiting", "preempted"):
        assert samples[f'pellucid_requests{{status="{status}"}}'] == statuses.count(status)  # type: ignore[arg-type]
    assert set(snapshot.hits) == {"first", "resume"}
    for kind, count in snapshot.hits.items():
        assert samples[f'pellucid_prefix_tokens_asked_total{{kind="{kind}"}}'] == count.asked
        assert samples[f'pellucid_prefix_tokens_hit_total{{kind="{kind}"}}'] == count.hit
    assert samples['pellucid_prefix_missed_tokens_total{reason="evicted"}'] == snapshot.missed["evicted"] > 0  # type: ignore[index]
    missed = sum(value for name, value in samples.items() if name.startswith("pellucid_prefix_missed"))
    assert missed == sum(count.asked - count.hit for count in snapshot.hits.values())
    assert samples["pellucid_evictions_total{}"] == snapshot.evictions > 0
    assert samples["pellucid_violations{}"] == 2


def test_a_pool_may_be_called_anything(engine: ForcedEngine) -> None:
    snapshot = engine.kv.snapshot()
    odd = msgspec.structs.replace(snapshot, pools=(msgspec.structs.replace(snapshot.pool, name='a"b\\c\nd'),))
    assert parse(exposition(odd))['pellucid_blocks_size{pool="a\\"b\\\\c\\nd"}'] == 60
