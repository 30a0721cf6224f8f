"""Making a script's engine: with the model it names, or the one it must make do with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pellucid.compat import options
from pellucid.compat.engine import Engine
from pellucid.compat.notes import Notes
from pellucid.engine.options import DEFAULT_MODEL
from pellucid.errors import ModelNotFound


class EngineMaker:
    """Makes every engine of one run, and writes them down in its ``notes``.

    ``forced`` is the model for all of them, whatever the script names.
    """

    def __init__(self, forced: str | None, notes: Notes) -> None:
        self._forced = forced
        self._notes = notes
        self._absent: set[str] = set()

    def make(self, model: str, given: Mapping[str, Any]) -> Engine:
        """An engine for ``LLM(model, **given)`` of a script.

        Raises `NotCovered` for an option that Pellucid lacks, `ModelError` for a model that is there and damaged
        or unsupported, `ConfigError` for options that cannot work.
        """
        engine = self._open(model, options.ours(model, given, self._notes.say))
        self._notes.records.append(engine.record)
        return engine

    def _open(self, model: str, ours: dict[str, Any]) -> Engine:
        if self._forced is not None:
            if model != self._forced:
                self._notes.say(f"--model {self._forced} takes the place of the script's {model}.")
            return Engine(self._forced, model, **ours)
        if model not in self._absent:
            try:
                return Engine(model, model, **ours)
            except ModelNotFound as error:
                self._absent.add(model)
                self._notes.say(str(error))
        self._notes.say(f"{DEFAULT_MODEL} takes the place of the script's {model} (--model names another).")
        return Engine(DEFAULT_MODEL, model, **ours)
