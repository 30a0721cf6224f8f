"""Models: found, checked, loaded and run, with their tokenizers."""

from pellucid.model.config import ModelConfig
from pellucid.model.llama import Model
from pellucid.model.load import Checkpoint, LoadedModel, find, load, parse_device, parse_dtype
from pellucid.model.tiny import ByteTokenizer
from pellucid.model.tokenizer import Tokenizer

__all__ = [
    "ByteTokenizer",
    "Checkpoint",
    "LoadedModel",
    "Model",
    "ModelConfig",
    "Tokenizer",
    "find",
    "load",
    "parse_device",
    "parse_dtype",
]
