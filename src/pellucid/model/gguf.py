"""Reading GGUF files: header, metadata and tensors, with every byte accounted for.

The format is described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The ``gguf``
package unpacks the quantised blocks; its own reader is not used, because it makes an array for every
string of the vocabulary (seconds, where this takes a fraction of one) and cannot say what is missing
from a truncated file.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from pellucid.errors import ModelError
from pellucid.ops import Quantised

# fmt: off
SUPPORTED = (
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S",
    "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4",
)
# fmt: on
KEPT: dict[GGMLQuantizationType, Literal["q4_0", "q4_1", "q8_0"]] = {
    GGMLQuantizationType.Q4_0: "q4_0",
    GGMLQuantizationType.Q4_1: "q4_1",
    GGMLQuantizationType.Q8_0: "q8_0",
}

# Codes of metadata values, and how struct reads them.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_VALUES_AT_A_TIME = 1 << 20


@dataclass(frozen=True)
class GGUFTensor:
    """Where one tensor lies: ``shape`` with the fastest axis last (as torch has it), ``start`` in bytes of the file."""

    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    start: int
    nbytes: int


class GGUFFile:
    """A mapped GGUF file: ``metadata`` by key, ``tensors`` by llama.cpp's names.

    Raises `ModelError`, with byte numbers, for a file that is not GGUF, of another version or byte order,
    truncated or damaged, and for tensor types that cannot be unpacked, naming the tensor and the type.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        size = path.stat().st_size
        if size == 0:
            raise ModelError(f"{path} is empty.")
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        cursor = _Cursor(path, self._bytes)
        tensor_count, value_count = _preamble(cursor)
        self.metadata: dict[str, Any] = {}
        for _ in range(value_count):
            key = cursor.string()
            self.metadata[key] = cursor.value(cursor.scalar("I"), key)
        infos = [cursor.tensor_info() for _ in range(tensor_count)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ModelError(f"{path} is damaged: general.alignment must be a positive number, not {alignment!r}.")
        data_start = -(-cursor.at // alignment) * alignment
        self.tensors = {info[0]: _placed(path, size, data_start, *info) for info in infos}

    def copy_to(self, name: str, out: torch.Tensor, row_order: torch.Tensor | None = None) -> None:
        """Unpack one tensor into ``out`` (contiguous, any type and device); row i of it is stored row ``row_order[i]``.

        Goes by groups of rows: fresh memory costs more than the unpacking, so little of it is used in passing.
        """
        tensor = self.tensors[name]
        rows = out.view(-1, tensor.shape[-1])
        stored = self._rows(tensor, row_order)
        step = max(1, _VALUES_AT_A_TIME // tensor.shape[-1])
        for start in range(0, len(rows), step):
            some = stored[start : start + step]
            if tensor.kind in KEPT:
                values = Quantised(KEPT[tensor.kind], torch.from_numpy(some)).dense()
            else:
                values = torch.from_numpy(dequantize(some, tensor.kind))
            rows[start : start + step].copy_(values)

    def stored(self, name: str, row_order: torch.Tensor | None = None) -> Quantised | None:
        """The tensor as it lies in the file, rows in ``row_order``, if it is of a kind that can be multiplied with."""
        tensor = self.tensors[name]
        if tensor.kind not in KEPT or len(tensor.shape) != 2:
            return None
        return Quantised(KEPT[tensor.kind], torch.from_numpy(self._rows(tensor, row_order)))

    def _rows(self, tensor: GGUFTensor, row_order: torch.Tensor | None) -> np.ndarray:
        stored = np.frombuffer(self._bytes, np.uint8, tensor.nbytes, tensor.start)
        rows = stored.reshape(math.prod(tensor.shape[:-1]), -1)
        return rows if row_order is None else rows[row_order.numpy()]


class _Cursor:
    """A place in the file that moves forward and never past the end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.at = path, 0
        self._data, self._size = data, len(data)

    def take(self, count: int) -> int:
        """Move over ``count`` bytes and say where they began."""
        start, self.at = self.at, self.at + count
        if self.at > self._size:
            raise ModelError(
                f"{self.path} is truncated or damaged: its header goes on to byte {self.at:,} "
                f"but the file has {self._size:,} bytes."
            )
        return start

    def scalar(self, code: str) -> Any:
        return struct.unpack_from("<" + code, self._data, self.take(struct.calcsize(code)))[0]

    def string(self) -> str:
        start = self.take(self.scalar("Q"))
        try:
            return self._data[start : self.at].decode("utf-8")
        except UnicodeDecodeError:
            raise ModelError(f"{self.path} is damaged: the text at byte {start:,} is not UTF-8.") from None

    def strings(self, count: int) -> list[str]:
        """``count`` strings one after the other: the vocabulary has tens of thousands, so this loop is kept short."""
        length, data, size = struct.Struct("<Q").unpack_from, self._data, self._size
        at, found = self.at, []
        for _ in range(count):
            start = at + 8
            if start > size or (at := start + length(data, at)[0]) > size:
                self.take(max(start, at) - self.at)
            try:
                found.append(data[start:at].decode("utf-8"))
            except UnicodeDecodeError:
                raise ModelError(f"{self.path} is damaged: the text at byte {start:,} is not UTF-8.") from None
        self.at = at
        return found

    def value(self, kind: int, key: str) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            kind, count = self.scalar("I"), self.scalar("Q")
            if kind in _SCALARS:
                code = f"<{count}{_SCALARS[kind]}"
                start = self.take(count * struct.calcsize(_SCALARS[kind]))
                return list(struct.unpack_from(code, self._data, start))
            if kind == _STRING:
                return self.strings(count)
        raise ModelError(f"{self.path} is damaged: {key!r} has the unknown value type {kind} before byte {self.at:,}.")

    def tensor_info(self) -> tuple[str, int, tuple[int, ...], int]:
        """Name, type code, shape (fastest axis last) and offset into the data section."""
        name = self.string()
        axes = self.scalar("I")
        if not 1 <= axes <= 4:
            raise ModelError(f"{self.path} is damaged: the tensor {name!r} has {axes} axes before byte {self.at:,}.")
        shape = tuple(self.scalar("Q") for _ in range(axes))[::-1]
        return name, self.scalar("I"), shape, self.scalar("Q")


def _preamble(cursor: _Cursor) -> tuple[int, int]:
    """Check magic and version; the numbers of tensors and of metadata values."""
    magic = cursor.scalar("4s")
    if magic != b"GGUF":
        raise ModelError(f"{cursor.path} is not a GGUF file: it begins with {magic!r}, not b'GGUF'.")
    version = cursor.scalar("I")
    if version not in (2, 3):
        order = " (it may be big-endian)" if version & 0xFFFF == 0 else ""
        raise ModelError(f"{cursor.path}: GGUF version {version} is not supported{order}; supported: 2 and 3.")
    return cursor.scalar("Q"), cursor.scalar("Q")


def _placed(
    path: Path, size: int, data_start: int, name: str, code: int, shape: tuple[int, ...], offset: int
) -> GGUFTensor:
    """The tensor with its place in the file, its type known to be supported and its bytes known to be there."""
    kind = GGMLQuantizationType(code) if code in GGMLQuantizationType._value2member_map_ else None
    if kind is None or kind.name not in SUPPORTED:
        named = kind.name if kind else f"number {code}"
        raise ModelError(
            f"{path}: the tensor {name!r} is of type {named}, which is not supported; "
            f"supported: {', '.join(SUPPORTED)}."
        )
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        raise ModelError(
            f"{path} is damaged: rows of {shape[-1]} in the tensor {name!r} are no multiple of {kind.name}'s {block}."
        )
    nbytes = math.prod(shape) // block * block_bytes
    if data_start + offset + nbytes > size:
        raise ModelError(
            f"{path} is truncated: the tensor {name!r} lies in bytes {data_start + offset:,} to "
            f"{data_start + offset + nbytes:,} but the file has {size:,} bytes."
        )
    return GGUFTensor(name, kind, shape, data_start + offset, nbytes)
