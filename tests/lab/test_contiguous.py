"""The contiguous allocator, by exact slots, against a map of single slots under random use."""

from __future__ import annotations

import random

from pellucid.lab.contiguous import FirstFit, Stretch


def test_first_fit_takes_the_first_run_that_is_long_enough() -> None:
    memory = FirstFit(100)
    assert all(memory.place(name, length) for name, length in (("a", 20), ("b", 10), ("c", 30), ("d", 25)))
    memory.release("b")
    memory.release("d")
    assert (memory.free, memory.longest) == (50, 40)
    assert memory.place("e", 11)
    assert memory.place("f", 10)
    assert not memory.place("g", 30)
    assert memory.map() == (
        Stretch(0, 20, "a"),
        Stretch(20, 30, "f"),
        Stretch(30, 60, "c"),
        Stretch(60, 71, "e"),
        Stretch(71, 100, None),
    )


def test_free_neighbours_are_one_run() -> None:
    memory = FirstFit(30)
    for name in "abc":
        assert memory.place(name, 10)
    assert (memory.free, memory.longest) == (0, 0)
    for name, longest in (("a", 10), ("c", 10), ("b", 30)):
        memory.release(name)
        assert memory.longest == longest
    assert memory.map() == (Stretch(0, 30, None),)


def test_it_places_exactly_where_a_map_of_slots_says() -> None:
    rng = random.Random(9)
    memory, slots = FirstFit(60), [""] * 60
    refused = 0
    for number in range(2_000):
        held = sorted({name for name in slots if name})
        if held and rng.random() < 0.45:
            name = rng.choice(held)
            memory.release(name)
            slots = ["" if each == name else each for each in slots]
            continue
        name, length = str(number), rng.randint(1, 25)
        fits = [start for start in range(61 - length) if not any(slots[start : start + length])]
        assert memory.place(name, length) == bool(fits)
        refused += not fits
        if fits:
            slots[fits[0] : fits[0] + length] = [name] * length
        assert [part.name or "" for part in memory.map() for _ in range(part.length)] == slots
        assert memory.free == slots.count("")
    assert refused > 100
