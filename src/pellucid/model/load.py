"""From what a user calls a model to a model that can run."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from pellucid.errors import ConfigError, ModelError, ModelNotFound
from pellucid.model import hub, smollm2, tiny
from pellucid.model.config import ModelConfig
from pellucid.model.folder import FolderCheckpoint
from pellucid.model.llama import Model, tensor_shapes
from pellucid.model.tokenizer import Tokenizer
from pellucid.model.weights import Weights, dummy_weights
from pellucid.ops import choose_ops

FORMS = (
    f"give {smollm2.NAME}, {tiny.NAME}, a folder with config.json and safetensors, a .gguf file, "
    "or a hub id such as HuggingFaceTB/SmolLM2-135M"
)
DTYPES = {
    "float32": torch.float32,
    "float": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "half": torch.float16,
}


class Checkpoint(Protocol):
    """A model on disk (or made from a seed), its configuration read and its weights not yet.

    ``name`` is what to call it, ``source`` where it was found.
    """

    name: str
    source: str
    config: ModelConfig

    def tokenizer(self) -> Tokenizer | None: ...

    def weights(self) -> Weights: ...


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run; ``tokenizer`` is None if the model came without one (token ids still work)."""

    model: Model
    tokenizer: Tokenizer | None
    config: ModelConfig
    name: str
    source: str


def find(spec: str, *, seed: int = 0) -> Checkpoint:
    """The checkpoint that ``spec`` names: ``smollm2-135m``, ``tiny``, a folder, a .gguf file or a hub id.

    Reads configuration only, so a KV pool can be sized before any weight is loaded.
    Raises `ModelNotFound` if there is no such model, `ModelError` if it cannot be run.
    """
    if spec == smollm2.NAME:
        return _gguf(smollm2.locate(), name=spec)
    if spec == tiny.NAME:
        return tiny.TinyCheckpoint(seed)
    path = Path(spec).expanduser()
    if spec and path.is_dir():
        return FolderCheckpoint(path)
    if path.suffix == ".gguf" and path.is_file():
        return _gguf(path)
    if path.is_file():
        raise ModelError(f"The file {spec} is not a .gguf file; {FORMS}.")
    if path.suffix == ".gguf" or spec.startswith(("/", "./", "../", "~")):
        raise ModelNotFound(f"There is no file or folder {spec}; {FORMS}.")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", spec):
        return hub.HubCheckpoint(spec)
    raise ModelNotFound(f"{spec!r} is not a model that can be found; {FORMS}.")


def load(
    spec: str | Checkpoint,
    *,
    dtype: str | torch.dtype = "auto",
    device: str = "cpu",
    load_format: str = "auto",
    seed: int = 0,
    quantization: str | None = None,
    kernels: str = "auto",
) -> LoadedModel:
    """Load the model that ``spec`` names or is (see `find`) with its weights as ``dtype`` on ``device``.

    ``dtype``: float32 (or float), bfloat16, float16 (or half); auto is float32 on a CPU and bfloat16 on a GPU,
    or where weights stay quantised (``quantization="gguf"``: the 4 and 8 bits of a GGUF file).
    ``kernels``: see `pellucid.ops.choose_ops`.
    ``load_format="dummy"`` makes up weights from ``seed`` for the shapes of the model's configuration.
    Raises `ConfigError` for an unknown option and `ModelError` if the model cannot be had, read or run.
    """
    place = parse_device(device)
    kind = parse_dtype(dtype, place, quantization)
    ops = choose_ops(kernels, kind, place)
    if load_format not in ("auto", "dummy"):
        raise ConfigError(f"load_format must be 'auto' or 'dummy', not {load_format!r}.")
    checkpoint = find(spec, seed=seed) if isinstance(spec, str) else spec
    config = checkpoint.config
    weights = dummy_weights(tensor_shapes(config), seed, place) if load_format == "dummy" else checkpoint.weights()
    if quantization:
        _check_quantised(checkpoint, quantization, load_format)
    try:
        model = Model(config, weights, ops, place, quantised=quantization is not None)
    except OSError as error:
        raise ModelError(
            f"{checkpoint.name}: there is not enough memory for its weights in {kind} ({error}); "
            "try bfloat16, quantization='gguf' or a smaller model."
        ) from None
    return LoadedModel(model, checkpoint.tokenizer(), config, checkpoint.name, checkpoint.source)


def _gguf(path: Path, name: str | None = None) -> Checkpoint:
    from pellucid.model.gguf_checkpoint import GGUFCheckpoint  # here, because it takes a while to import

    return GGUFCheckpoint(path, name)


def _check_quantised(checkpoint: Checkpoint, quantization: str, load_format: str) -> None:
    from pellucid.model.gguf_checkpoint import GGUFCheckpoint

    if not isinstance(checkpoint, GGUFCheckpoint):
        raise ConfigError(
            f"quantization={quantization!r} is for .gguf files, and {checkpoint.name} is none; leave it out."
        )
    if load_format == "dummy":
        raise ConfigError(
            f"quantization={quantization!r} has no meaning for the made-up weights of load_format='dummy'."
        )


def parse_dtype(dtype: str | torch.dtype, device: torch.device, quantization: str | None = None) -> torch.dtype:
    """The torch type for a ``dtype`` option; raises `ConfigError` naming the possible ones."""
    if quantization not in (None, "gguf"):
        raise ConfigError(f"quantization {quantization!r} is not supported; supported: gguf.")
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" and not quantization else torch.bfloat16
    found = dtype if isinstance(dtype, torch.dtype) else DTYPES.get(dtype)
    if found is None or found not in DTYPES.values():
        raise ConfigError(f"dtype {dtype!r} is not supported; supported: auto, {', '.join(DTYPES)}.")
    if quantization and found is not torch.bfloat16:
        raise ConfigError(f"quantization={quantization!r} multiplies in bfloat16, not {dtype}; leave dtype out.")
    return found


def parse_device(device: str) -> torch.device:
    """The torch device for a ``device`` option; raises `ConfigError` if it is unknown or not there.

    ``auto`` is an NVIDIA GPU of compute capability 8.0 (Ampere) or later if torch sees one and Triton, in which our
    kernels for GPUs are written, can be imported; of several GPUs, ``auto`` and ``cuda`` are torch's current one.
    """
    if device == "auto":
        device = "cuda" if _has_a_card() and _has_triton() else "cpu"
    try:
        place = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"device {device!r} is unknown; use auto, cpu or cuda.") from None
    if place.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {device!r} is not supported; use auto, cpu or cuda.")
    if place.type == "cpu":
        return place
    if (place.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {device!r} is not there: torch sees {torch.cuda.device_count()} GPUs; use cpu.")
    return place if place.index is not None else torch.device("cuda", torch.cuda.current_device())


def _has_a_card() -> bool:
    return torch.cuda.is_available() and torch.version.hip is None and torch.cuda.get_device_capability() >= (8, 0)


def _has_triton() -> bool:
    try:
        importlib.import_module("triton")
    except ImportError:
        return False
    return True
