"""Drawing a snapshot as HTML: the same marks, letters and colours as in the terminal.

Everything is a tree of `markup.Element` until it is `written` in one language. The style sheet is
`picture.css`; it follows the reader's light or dark scheme, and prints.
"""

from pellucid.view.html.block_map import block_map, legend
from pellucid.view.html.cell import Cell, cells
from pellucid.view.html.markup import Element, Json, Node, Raw, element, written
from pellucid.view.html.picture import alone, picture, style
from pellucid.view.html.tables import strip, tables
from pellucid.view.html.totals import Totals, totals

__all__ = [
    "Cell",
    "Element",
    "Json",
    "Node",
    "Raw",
    "Totals",
    "alone",
    "block_map",
    "cells",
    "element",
    "legend",
    "picture",
    "strip",
    "style",
    "tables",
    "totals",
    "written",
]
