"""One model for every engine: what Pellucid runs, written once as a folder that the others can load.

The weights are those that Pellucid takes from its source (a GGUF file's unpacked), rounded to ``dtype``,
under Hugging Face names in one safetensors file beside a config.json. The tokenizer is there, and benchmarks
speak in token ids. The folder stands in Pellucid's cache folder and is used again as long as the source
is the same file.

    python benchmarks/model_folder.py [--dtype bfloat16] [--no-folder] MODEL

The last line printed is one JSON object: the folder and what a benchmark has to know of the model.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch

from pellucid.model import find, parse_dtype
from pellucid.model.export import model_folder
from pellucid.model.load import Checkpoint
from pellucid.native import native


def facts(checkpoint: Checkpoint, dtype: torch.dtype) -> dict[str, Any]:
    """What a benchmark has to know: where the model is, its sizes in bytes, and which compiled kernels there are."""
    config, source = checkpoint.config, Path(checkpoint.source)
    gguf = source if source.suffix == ".gguf" else None
    parameters = sum(map(math.prod, checkpoint.weights().shapes.values()))
    return {
        "name": checkpoint.name,
        "source": checkpoint.source,
        "gguf": gguf and str(gguf),
        "vocab_size": config.vocab_size,
        "weight_bytes": parameters * dtype.itemsize,
        "gguf_bytes": gguf and gguf.stat().st_size,
        "kv_bytes_per_token": 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype.itemsize,
        "kernels": native().why,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--no-folder", action="store_true", help="only say what there is to know of the model")
    options = parser.parse_args()
    checkpoint, dtype = find(options.model), parse_dtype(options.dtype, torch.device("cpu"))
    folder = None if options.no_folder else str(model_folder(checkpoint, dtype))
    print(json.dumps({"folder": folder, **facts(checkpoint, dtype)}))


if __name__ == "__main__":
    main()
