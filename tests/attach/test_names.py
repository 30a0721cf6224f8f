"""Callers' names: resolved by what vLLM said, matched exactly, and never guessed where two requests share one."""

from __future__ import annotations

import pytest

from pellucid.attach.names import AmbiguousName, Names
from pellucid.errors import UnknownRequest


def opened(*pairs: tuple[str, str | None]) -> Names:
    """Live requests by (internal id, the id that vLLM was given)."""
    names = Names()
    for internal, external in pairs:
        names.announce(internal, external)
        names.open(internal)
    return names


def test_the_random_tail_is_not_part_of_a_name() -> None:
    names = opened(("R1-0a1b2c3d", "R1"), ("R1-x-99887766", "R1-x"))
    assert names.find("R1") == "R1"
    assert names.find("R1-x") == "R1-x"
    assert names.find("R1-0a1b2c3d") == "R1"


@pytest.mark.parametrize("asked", ["R", "R1-", "r1", "R1-0a", ""])
def test_a_name_is_never_a_prefix(asked: str) -> None:
    with pytest.raises(UnknownRequest, match="names are matched exactly"):
        opened(("R1-0a1b2c3d", "R1")).find(asked)


def test_before_0_14_a_request_keeps_its_name() -> None:
    assert opened(("R1", None)).find("R1") == "R1"


@pytest.mark.parametrize("given", ["cmpl-alice-0", "chatcmpl-alice"])
def test_a_client_is_found_by_its_own_request_id(given: str) -> None:
    names = opened((f"{given}-0a1b2c3d", given))
    assert names.find("alice") == names.find(given) == "alice"


def test_two_live_requests_of_one_name_are_told_apart_and_named() -> None:
    names = opened(("R1-00000001", "R1"), ("R1-00000002", "R1"))
    with pytest.raises(AmbiguousName, match=r"2 live requests were given the name 'R1'.*'R1-00000002'"):
        names.find("R1")
    assert names.find("R1-00000002") == "R1-00000002"
    names.close("R1-00000001")
    assert names.find("R1") == "R1-00000002"


def test_a_name_may_be_used_again() -> None:
    names = opened(("R1-00000001", "R1"))
    names.close("R1-00000001")
    names.announce("R1-00000002", "R1")
    assert names.open("R1-00000002") == "R1"


def test_an_ended_request_may_be_asked_for() -> None:
    names = opened(("a-00000001", "a"))
    assert names.find("gone", {"gone": None}) == "gone"
    with pytest.raises(UnknownRequest, match=r"live: a\)"):
        names.find("gone")
