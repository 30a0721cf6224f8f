"""Callers' names: resolved by what vLLM said, matched exactly, and never guessed where two requests share one."""

from __future__ import annotations

import pytest

from pellucid.attach.names import MOST_ANNOUNCED, AmbiguousName, Names
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


def joins(live: Names, external: str, internal: str) -> str:
    """The name of one more request."""
    live.announce(internal, external)
    return live.open(internal)


def test_a_name_that_another_goes_by_is_not_given_again() -> None:
    live = Names()
    assert joins(live, "cmpl-a-0", "cmpl-a-0-1") == "a"
    assert joins(live, "cmpl-a-0", "cmpl-a-0-2") == "cmpl-a-0-2"  # cmpl-a-0 is the first one's name too
    assert joins(live, "cmpl-a-1", "cmpl-a-1-3") == "cmpl-a-1"  # the second prompt of a list
    with pytest.raises(AmbiguousName, match="2 live requests were given the name 'cmpl-a-0'"):
        live.find("cmpl-a-0")
    with pytest.raises(AmbiguousName, match="3 live requests"):
        live.find("a")
    for internal in ("cmpl-a-0-1", "cmpl-a-0-2", "cmpl-a-1-3"):
        live.close(internal)
    with pytest.raises(UnknownRequest):
        live.find("a")
    assert joins(live, "cmpl-a-0", "cmpl-a-0-4") == "a"


@pytest.mark.parametrize(("external", "client"), [("cmpl-p-0", "p"), ("chatcmpl-p", "p"), ("7", "7")])
def test_several_answers_to_one_prompt_are_numbered(external: str, client: str) -> None:
    live = Names()
    assert joins(live, external, f"0_{external}-0a1b2c3d") == f"0_{client}"
    assert joins(live, external, f"1_{external}-0a1b2c3d") == f"1_{client}"
    with pytest.raises(AmbiguousName, match="2 live requests"):
        live.find(client)
    assert live.find(f"1_{client}") == f"1_{client}"


def test_before_0_14_the_servers_ids_have_no_tail() -> None:
    live = opened(("cmpl-a-0", None), ("1_chatcmpl-b", None))
    assert live.find("a") == "a"
    assert live.find("1_b") == "1_b"


@pytest.mark.parametrize("external", ["0_own", None])
def test_a_callers_own_name_may_look_like_a_numbered_answer(external: str | None) -> None:
    internal = "0_own-0a1b2c3d" if external else "0_own"
    live = opened((internal, external))
    assert live.aliases(internal) == {"0_own", internal}
    assert live.find("0_own") == "0_own"


def test_two_of_one_name_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    opened(*((f"cmpl-a-0-{number}", "cmpl-a-0") for number in range(4)))
    said = [record.message for record in caplog.records]
    assert said == ["two live requests were given the name 'a'; the later one is shown as 'cmpl-a-0-1'."]


def test_names_that_nobody_opens_do_not_pile_up() -> None:
    live = Names()
    for number in range(MOST_ANNOUNCED + 10):
        live.announce(f"R-{number}", "R")
    assert live.open("R-0") == "R-0"  # forgotten
    assert live.open(f"R-{MOST_ANNOUNCED}") == "R"
