"""``pellucid explain``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from pellucid.errors import UnknownRequest
from pellucid.kv.acts import Lookup, MissReason
from pellucid.kv.explain import Explanation
from pellucid.kv.table import RequestStatus
from pellucid.lang import encoded, say, told
from pellucid.stream.live import Live
from pellucid.view.language import add_language, language
from pellucid.view.letters import printable
from pellucid.view.lines import wrapped
from pellucid.watch.screen import print_lines
from pellucid.watch.sums import misses
from pellucid.watch.tape import read_tape
from pellucid.watch.targets import HELP, feeds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``pellucid explain``."""
    parser.add_argument("target", nargs="?", metavar="TARGET", help=f"{HELP}, or a recording")
    parser.add_argument("request", metavar="REQUEST", help="its name, exactly")
    parser.add_argument("--json", action="store_true", help="one JSON object an engine core that knows the request")
    add_language(parser)


def main(arguments: argparse.Namespace) -> int:
    """Explain; returns the exit status. Raises `UnknownRequest` with the names that there are."""
    spoken = language(arguments)
    target, name = arguments.target, arguments.request
    with ExitStack() as stack:
        if target and Path(target).is_file():
            tape = read_tape(target)
            known = [(tape.live(tape.last), tape.live(tape.last).time if tape.watched else None)]
        else:
            known = [(feed.live, feed.now) for feed in feeds([target] if target else [], None, stack)]
        answers = list(_answers(known, name))
        for live, explanation in answers:
            if arguments.json:
                print(encoded(_facts(live, explanation), spoken))
            else:
                _tell(live, explanation, spoken, with_rank=len(answers) > 1)
    return 0


def _answers(known: list[tuple[Live, float | None]], name: str) -> Iterator[tuple[Live, Explanation]]:
    """What each core that knows ``name`` says. Raises `UnknownRequest` if none does."""
    refusals = []
    for live, now in known:
        try:
            explanation = live.explanation(name)
        except UnknownRequest as error:
            refusals.append(str(error))
        else:
            seen = explanation.lookup is not None or not _admitted(live, name)
            yield live, replace(explanation, seen=seen, ages=_ages(live, explanation.lookup, now))
    if len(refusals) == len(known):
        raise UnknownRequest(" ".join(dict.fromkeys(refusals)))


def _admitted(live: Live, name: str) -> bool:
    """Whether ``name`` runs now, or did before it was pre-empted."""
    return any(request.name == name and request.status != RequestStatus.WAITING for request in live.snapshot.requests)


def _ages(live: Live, lookup: Lookup | None, now: float | None) -> dict[int, float]:
    """Seconds since the steps that ``lookup`` speaks of; none in a saved journal, which knows no times."""
    if lookup is None or now is None:
        return {}
    steps = {miss.step for miss in lookup.missed if miss.step is not None}
    return {step: age for step in steps if (age := live.age(step, now)) is not None}


def _sums(lookup: Lookup | None) -> dict[MissReason, int]:
    """Tokens missed by reason."""
    sums: dict[MissReason, int] = {}
    for miss in lookup.missed if lookup else ():
        sums[miss.reason] = sums.get(miss.reason, 0) + miss.tokens
    return sums


def _tell(live: Live, explanation: Explanation, language: str, *, with_rank: bool) -> None:
    lines: list[str] = [say("rank {rank}:", rank=live.watched.rank)] if with_rank else []
    lines.append(explanation.sentence)
    if sums := _sums(explanation.lookup):
        lines.append(say("tokens missed: {misses}", misses=misses(sums)))
    if explanation.ended:
        lines.append(_end(live, explanation.request))
    console = Console(highlight=False)
    for line in lines:
        print_lines(console, map(Text, wrapped(printable(told(line, language)), console.width)))


def _end(live: Live, name: str) -> str:
    ended = live.ended.get(name)
    if ended is None:
        return say("{name} is no longer live.", name=name)
    return say("{name} is no longer live: it ended in step {n} ({why}).", name=name, n=ended.step, why=ended.reason)


def _facts(live: Live, explanation: Explanation) -> dict[str, object]:
    return {
        "watched": live.watched,
        "request": explanation.request,
        "ended": explanation.ended,
        "lookup": explanation.lookup,
        "missed": _sums(explanation.lookup),
        "ages": {str(step): age for step, age in explanation.ages.items()},
        "explanation": explanation.sentence,
    }
