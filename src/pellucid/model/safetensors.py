"""Weights from a folder of safetensors files, single or sharded. Pickled files are never opened."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from pellucid.errors import ModelError
from pellucid.model.weights import Shape

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


class SafetensorsWeights:
    """The tensors of ``folder``'s model.safetensors, or of the shards its index names.

    Every header is checked on construction and nothing is loaded: raises `ModelError` naming the file,
    the tensor and the bytes for missing, truncated or damaged files and for types that are not supported.
    """

    def __init__(self, folder: Path) -> None:
        self.origin = str(folder)
        self._entries = _entries(folder)
        self.shapes: Mapping[str, Shape] = {name: entry.shape for name, entry in self._entries.items()}
        self._open: dict[Path, Any] = {}

    def copy_to(self, name: str, out: torch.Tensor) -> None:
        path = self._entries[name].path
        try:
            if path not in self._open:
                self._open[path] = safe_open(path, framework="pt", device="cpu")
            out.copy_(self._open[path].get_tensor(name))
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path}: the tensor {name!r} cannot be read ({error}).") from None

    def stored(self, name: str) -> None:
        """Nothing here is quantised."""


@dataclass(frozen=True)
class _Entry:
    path: Path
    shape: Shape


def _entries(folder: Path) -> dict[str, _Entry]:
    if (folder / SINGLE).is_file():
        return _header(folder / SINGLE)
    if not (folder / INDEX).is_file():
        raise ModelError(_nothing_to_load(folder))
    shard_of = read_json(folder / INDEX).get("weight_map")
    if not isinstance(shard_of, dict) or not all(isinstance(shard, str) for shard in shard_of.values()):
        raise ModelError(f"{folder / INDEX} has no 'weight_map' from tensor names to shard files.")
    shards = sorted(set(shard_of.values()))
    missing = [shard for shard in shards if Path(shard).name != shard or not (folder / shard).is_file()]
    if missing:
        raise ModelError(f"{folder}: {len(missing)} of {len(shards)} shards are missing: {', '.join(missing)}.")
    headers = {shard: _header(folder / shard) for shard in shards}
    for name, shard in shard_of.items():
        if name not in headers[shard]:
            raise ModelError(f"{folder / shard}: the tensor {name!r} is missing, though {INDEX} says it is there.")
    return {name: headers[shard][name] for name, shard in shard_of.items()}


def _nothing_to_load(folder: Path) -> str:
    pickled = [path.name for path in sorted(folder.iterdir()) if path.suffix in (".bin", ".pt", ".pth")]
    if pickled:
        return (
            f"{folder} holds only pickled weights ({pickled[0]}), which can run code when they are opened; "
            "convert them to safetensors first, for example with transformers' save_pretrained()."
        )
    return f"{folder} holds no weights: neither {SINGLE} nor {INDEX} is there."


def _header(path: Path) -> dict[str, _Entry]:
    """Read and check one file's header: 8 bytes of length, that much JSON, then the tensors' bytes.

    The format is described at https://huggingface.co/docs/safetensors.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        start = 8 + length
        if size < 8 or start > size:
            raise ModelError(
                f"{path} is truncated: its header needs {max(start, 8):,} bytes but the file has {size:,} bytes."
            )
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            return {name: _entry(path, name, info, start, size) for name, info in header.items()}
        except (ValueError, AttributeError, KeyError, TypeError):
            raise ModelError(f"{path} is damaged: its header is not that of a safetensors file.") from None


def _entry(path: Path, name: str, info: dict[str, Any], start: int, size: int) -> _Entry:
    kind, shape, (begin, end) = info["dtype"], tuple(info["shape"]), info["data_offsets"]
    if kind not in ITEM_BYTES:
        raise ModelError(f"{path}: the tensor {name!r} is of type {kind}; supported: {', '.join(ITEM_BYTES)}.")
    if end - begin != math.prod(shape) * ITEM_BYTES[kind]:
        raise ModelError(
            f"{path} is damaged: the tensor {name!r} of shape {list(shape)} and type {kind} "
            f"cannot take {end - begin:,} bytes."
        )
    if start + end > size:
        raise ModelError(
            f"{path} is truncated: the tensor {name!r} ends at byte {start + end:,} but the file has {size:,} bytes."
        )
    return _Entry(path, shape)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; raises `ModelError` naming the file and line if it is not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ModelError(f"{path} cannot be read as JSON ({error}).") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a JSON {type(value).__name__}, not an object.")
    return value
