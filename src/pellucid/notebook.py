"""Pictures in a notebook: a snapshot, a request, ``llm.kv``, a proof or a report shows itself as one.

IPython asks its display formatter how a type is shown, and takes the answer for a type by its name,
before the type is imported. So `pellucid` registers these names with the running IPython when it is
imported, and drawing is imported when something is drawn: ``kv`` knows nothing of pictures, and
``import pellucid`` stays as light as it is. A terminal IPython shows the same in characters.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

TYPES = (
    ("pellucid.kv.snapshot", "Snapshot"),
    ("pellucid.kv.snapshot", "RequestView"),
    ("pellucid.kv.reader", "KVReader"),
    ("pellucid.lab.proof", "Proof"),
    ("pellucid.lab.trial", "Report"),
)


def register() -> None:
    """Tell the IPython that runs this process, if one does."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None:
        return
    formatters = shell.display_formatter.formatters
    for module, name in TYPES:
        formatters["text/html"].for_type_by_name(module, name, as_html)
        formatters["text/plain"].for_type_by_name(module, name, _print)


def as_html(shown: Any) -> str:
    """``shown``, of one of `TYPES`, as a piece of HTML with its style sheet."""
    return str(_drawing(shown).as_html(shown))


def as_text(shown: Any) -> str:
    """``shown``, of one of `TYPES`, in lines of at most 80 characters."""
    return str(_drawing(shown).as_text(shown))


def _drawing(shown: Any) -> Any:
    """The module that draws this type: each room draws its own."""
    room = "lab" if type(shown).__module__.startswith("pellucid.lab") else "view"
    return import_module(f"pellucid.{room}.notebook")


def _print(shown: Any, printer: Any, cycle: bool) -> None:
    """Only what is shown itself is drawn: inside a list or a tuple it stays short."""
    printer.text(as_text(shown) if len(printer.stack) == 1 else repr(shown))
