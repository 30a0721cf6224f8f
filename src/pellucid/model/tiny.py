"""The model that needs nothing: a small random Llama with a byte tokenizer, the same on every machine for a seed."""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.errors import RequestError
from pellucid.model.config import ModelConfig
from pellucid.model.llama import tensor_shapes
from pellucid.model.tokenizer import Tokenizer
from pellucid.model.weights import RandomWeights, Weights

NAME = "tiny"
BOS, EOS, PAD = 256, 257, 258
_NAMES = {BOS: "<bos>", EOS: "<eos>", PAD: "<pad>"}
CONFIG = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=260,
    hidden_size=64,
    intermediate_size=128,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    max_position=2048,
    bos_token_id=BOS,
    eos_token_ids=(EOS,),
)
_CHAT = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


class TinyCheckpoint:
    """The random model of ``seed``. It speaks nonsense, but its tokens depend on all that came before."""

    name, source, config = NAME, "made from a seed", CONFIG

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def tokenizer(self) -> Tokenizer:
        return ByteTokenizer()

    def weights(self) -> Weights:
        return RandomWeights(tensor_shapes(CONFIG), self._seed)


class ByteTokenizer(Tokenizer):
    """One token per UTF-8 byte (ids 0 to 255), then start, end and padding. No token is added around a text."""

    vocab_size = CONFIG.vocab_size
    bos_token_id, eos_token_id = BOS, EOS

    def __init__(self) -> None:
        super().__init__(_CHAT, {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"})

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        try:
            return list(text.encode())
        except UnicodeEncodeError:
            raise RequestError("A prompt's text must be a string of valid Unicode, without lone surrogates.") from None

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        names = {} if skip_special_tokens else _NAMES
        pieces = (bytes((id,)) if id < 256 else names.get(id, "").encode() for id in ids)
        return b"".join(pieces).decode(errors="replace")
