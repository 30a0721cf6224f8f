"""The block tables as strips: one line a request, its physical blocks in logical order."""

from __future__ import annotations

from rich.text import Text

from pellucid.kv.snapshot import Snapshot
from pellucid.view.letters import Letters, shown
from pellucid.view.lines import flow
from pellucid.view.runs import runs

NAME_WIDTH = 16


def strips(snapshot: Snapshot, letters: Letters, width: int = 80) -> list[Text]:
    """Letter, name, state, tokens, blocks, waste and table of every live request, under a heading.

    ``tokens`` are those that have a slot (the newest one gets its slot in the next step), ``waste``
    are slots of the last block that hold none: tokens + waste = blocks x block size.
    """
    requests = snapshot.requests
    letters.meet(request.name for request in requests)
    names = max([4, *(len(shown(request.name, NAME_WIDTH)) for request in requests)])
    heading = f"  {'name':<{names}}  {'state':<9} {'tokens':>6} {'blocks':>6} {'waste':>5}  table"
    lines = [Text(heading, style="dim")]
    for request in requests:
        held = len(request.blocks)
        waste = held * snapshot.pool.block_size - request.slots
        head = (
            f" {shown(request.name, NAME_WIDTH):<{names}}  {request.status:<9} {request.slots:>6} {held:>6} {waste:>5}"
        )
        pieces = [Text(run) for run in runs(request.blocks).split(" ")]
        indent = len(head) + 3
        table = flow(pieces, width - indent, gap=" ")
        lines.append(Text.assemble((letters.letter(request.name), letters.style(request.name)), head, "  ", table[0]))
        lines += [Text(" " * indent).append_text(rest) for rest in table[1:]]
    return lines
