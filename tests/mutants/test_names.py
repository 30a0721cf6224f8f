"""A name is the whole name."""

from __future__ import annotations

import pytest

from model_free import Bench
from pellucid.errors import UnknownRequest


def test_the_beginning_of_a_name_is_another_name() -> None:
    bench = Bench(num_blocks=5)
    bench.add("R10", [1, 2, 3])
    bench.step()
    for look in (bench.snapshot.request, bench.snapshot.table, bench.table, bench.abort):
        with pytest.raises(UnknownRequest, match=r"named 'R1'"):
            look("R1")
