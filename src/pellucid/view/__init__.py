"""Drawing a snapshot in characters. Reads `pellucid.kv` and nothing else.

Everything is drawn as `rich.text.Text`, one object a line: printed through a rich console it has
colours on a terminal and none in a pipe, and ``line.plain`` is the bare text. All marks are ASCII;
what stands in words is told in the ``language`` that each function takes, English by default.
"""

from pellucid.view.block_map import block_map, legend, marks
from pellucid.view.letters import Letters
from pellucid.view.picture import picture
from pellucid.view.runs import runs
from pellucid.view.strips import strips
from pellucid.view.totals import totals

__all__ = ["Letters", "block_map", "legend", "marks", "picture", "runs", "strips", "totals"]
