"""A model in a local Hugging Face folder: config.json, safetensors, and a tokenizer if there is one."""

from __future__ import annotations

from pathlib import Path

from pellucid.errors import ModelError
from pellucid.model import config, tokenizer
from pellucid.model.safetensors import SafetensorsWeights, read_json
from pellucid.model.tokenizer import Tokenizer
from pellucid.model.weights import Weights


class FolderCheckpoint:
    """The model in ``folder``; ``name`` is what to call it. Weights are looked for only when they are asked for."""

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self.name, self.source = name or folder.resolve().name, str(folder)
        self._folder = folder
        path = folder / "config.json"
        if not path.is_file():
            others = sorted(other.name for other in folder.glob("*.gguf"))
            hint = f"; to load the GGUF file in it, name it: {folder / others[0]}" if others else ""
            raise ModelError(f"{folder} is not a model folder: it has no config.json{hint}.")
        generation = folder / "generation_config.json"
        self.config = config.from_config_json(
            read_json(path), read_json(generation) if generation.is_file() else {}, where=str(path)
        )

    def tokenizer(self) -> Tokenizer | None:
        return tokenizer.from_folder(self._folder)

    def weights(self) -> Weights:
        return SafetensorsWeights(self._folder)
