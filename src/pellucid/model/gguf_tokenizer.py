"""The tokenizer inside a GGUF file, rebuilt for the ``tokenizers`` library from the file's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from pellucid.errors import ModelError
from pellucid.model.tokenizer import FastTokenizer

_CONTROL, _USER_DEFINED = 3, 4

# How text is cut up before merging, by ``tokenizer.ggml.pre``; each pattern in turn isolates what it matches.
# They are the published patterns of these tokenizers.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_PATTERNS = {
    "default": [_GPT2],
    "gpt-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
    "llama-bpe": [_LLAMA3],
    "qwen2": [_QWEN2],
}
_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def from_metadata(metadata: Mapping[str, Any], where: str) -> FastTokenizer | None:
    """The tokenizer that ``metadata`` describes, or None if it describes none.

    Byte-level BPE (``gpt2``) and sentencepiece BPE (``llama``) are supported; raises `ModelError`,
    beginning with ``where``, naming another.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model is None or model == "no_vocab":
        return None
    if model not in ("gpt2", "llama"):
        raise ModelError(f"{where}: the tokenizer {model!r} is not supported; supported: gpt2, llama.")
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if model == "gpt2" and pre not in _PATTERNS:
        raise ModelError(f"{where}: the pre-tokenizer {pre!r} is not supported; supported: {', '.join(_PATTERNS)}.")
    try:
        return _build(metadata, model, pre)
    except Exception as error:  # the tokenizers library raises plain Exception
        raise ModelError(f"{where} is damaged: no tokenizer can be made of its metadata ({error!r}).") from None


def _build(metadata: Mapping[str, Any], model: str, pre: str) -> FastTokenizer:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    backend = _byte_level(tokens, metadata, pre) if model == "gpt2" else _sentencepiece(tokens, metadata)
    kinds = metadata.get("tokenizer.ggml.token_type", [])
    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        added = [token for token, of in zip(tokens, kinds, strict=False) if of == kind]
        backend.add_tokens([AddedToken(token, special=special, normalized=False) for token in added])
    ids = {role: metadata.get(f"tokenizer.ggml.{key}_token_id") for role, key in _ROLES.items()}
    special_tokens = {role: tokens[id] for role, id in ids.items() if id is not None}
    # Where the file does not say whether texts begin with the start token, llama.cpp's rule holds.
    begins = metadata.get("tokenizer.ggml.add_bos_token", model == "llama" or pre == "llama-bpe")
    ends = metadata.get("tokenizer.ggml.add_eos_token", False)
    bos = special_tokens.get("bos_token") if begins else None
    eos = special_tokens.get("eos_token") if ends else None
    backend.post_processor = processors.TemplateProcessing(
        single=[piece for piece in (bos, "$A", eos) if piece],
        special_tokens=[(token, backend.token_to_id(token)) for token in (bos, eos) if token],
    )
    return FastTokenizer(backend, chat_template=metadata.get("tokenizer.chat_template"), special_tokens=special_tokens)


def _byte_level(tokens: Sequence[str], metadata: Mapping[str, Any], pre: str) -> Tokenizer:
    merges = [tuple(merge.split(" ", 1)) for merge in metadata.get("tokenizer.ggml.merges", [])]
    vocabulary = {token: id for id, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre == "llama-bpe"))
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in _PATTERNS[pre]]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(tokens: Sequence[str], metadata: Mapping[str, Any]) -> Tokenizer:
    """Sentencepiece BPE joins whichever neighbours form the best-scored piece: the same as merges in score order."""
    vocabulary = {token: id for id, token in enumerate(tokens)}
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    backend = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges_by_score(vocabulary, metadata.get("tokenizer.ggml.scores", [])),
            unk_token=tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
    back: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend("▁"))
        back.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = normalizers.Sequence(spaces)
    backend.decoder = decoders.Sequence(back)
    return backend


def _merges_by_score(vocabulary: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    ranked = []
    for piece, id in vocabulary.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                ranked.append((-scores[id], id, vocabulary[left], (left, right)))
    return [pair for *_, pair in sorted(ranked)]
