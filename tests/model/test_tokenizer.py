"""Tokenizers from a folder and from GGUF metadata, and chat templates: the same as transformers'."""

from __future__ import annotations

import json

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from pellucid.errors import ModelError, RequestError
from pellucid.model import find, gguf_tokenizer
from pellucid.model.chat import ChatTemplate
from pellucid.model.tokenizer import from_folder

TEXTS = [
    "Hello world",
    "",
    "  two  spaces\n\n\ttab",
    "안녕하세요 세계",
    "🙂👍🏽 é",
    "1234 and 5.6",
    "it's<|end|>We'LL",
    "a<|end|>",
]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}\n"
    "    {% if message.role == 'nobody' %}{{ raise_exception('no such role') }}{% endif %}\n"
    "{% generation %}{{ message.role }}: {{ message | tojson }}{% endgeneration %}<|end|>\n"
    "    {% if loop.last %}{% continue %}{% endif %}\n"
    "{% endfor %}{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}"
    "{% if add_generation_prompt %}assistant:{% endif %}{{ strftime_now('%Y')[:2] }}{{ mood }}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a small byte-level BPE tokenizer that puts a start token before a text."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|start|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["Hello world, hello 안녕하세요 1234 spaces and tabs"] * 9, trainer)
    backend.post_processor = processors.TemplateProcessing(single="<|start|> $A", special_tokens=[("<|start|>", 0)])
    path = tmp_path_factory.mktemp("tokenizer")
    backend.save(str(path / "tokenizer.json"))
    settings = {"bos_token": {"content": "<|start|>", "__type": "AddedToken"}, "eos_token": "<|end|>"}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (path / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": "from the settings"}))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    return path


@pytest.fixture(scope="module")
def oracle(folder):
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_text_equal_transformers(folder, oracle, text):
    ours = from_folder(folder)
    for special in (True, False):
        ids = ours.encode(text, add_special_tokens=special)
        assert ids == oracle.encode(text, add_special_tokens=special)
        for skip in (True, False):
            assert ours.decode(ids, skip_special_tokens=skip) == oracle.decode(ids, skip_special_tokens=skip)


def test_special_tokens(folder, oracle):
    ours = from_folder(folder)
    assert (ours.bos_token_id, ours.eos_token_id, ours.vocab_size) == (0, 1, len(oracle))


def test_half_a_character_is_the_replacement_character(folder):
    ours = from_folder(folder)
    ids = ours.encode("🙂", add_special_tokens=False)
    assert ours.decode(ids[:-1]).endswith("\ufffd")
    assert ours.decode(ids) == "🙂"


def test_chat_template_equals_transformers(folder, oracle):
    messages = [{"role": "user", "content": '<b> & "안녕"'}, {"role": "assistant", "content": "ok"}]
    for options in (
        {"add_generation_prompt": True},
        {"add_generation_prompt": False, "mood": "!", "tools": [{"type": "function", "name": "f"}]},
    ):
        expected = oracle.apply_chat_template(messages, tokenize=False, **options)
        assert from_folder(folder).apply_chat_template(messages, **options) == expected


def test_template_that_refuses(folder):
    with pytest.raises(RequestError, match=r"refuses this conversation: no such role\."):
        from_folder(folder).apply_chat_template([{"role": "nobody", "content": ""}])


def test_template_is_in_a_sandbox():
    template = ChatTemplate("{{ messages.__class__.__mro__[1].__subclasses__() }}", {})
    with pytest.raises(RequestError, match="unsafe"):
        template.render([], add_generation_prompt=True)
    with pytest.raises(RequestError, match="unsafe"):
        ChatTemplate("{{ messages.append(1) }}", {}).render([], add_generation_prompt=True)


def test_broken_template():
    with pytest.raises(ModelError, match="not a valid Jinja template"):
        ChatTemplate("{% if %}", {})


def test_no_template():
    tokenizer = gguf_tokenizer.from_metadata(gpt2(["a", "b"]), "m.gguf")
    with pytest.raises(ModelError, match="has no chat template; give a prompt as text or token ids"):
        tokenizer.apply_chat_template([])


def test_named_templates(folder, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    named = [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes {{ eos_token }}"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": named}))
    assert from_folder(tmp_path).apply_chat_template([]) == "yes <|end|>"


def test_folder_without_or_with_a_broken_tokenizer(tmp_path):
    assert from_folder(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer.json is not a tokenizer"):
        from_folder(tmp_path)


def test_text_that_is_not_unicode(folder):
    for tokenizer in (from_folder(folder), find("tiny").tokenizer()):
        with pytest.raises(RequestError, match="without lone surrogates"):
            tokenizer.encode("\ud800")


def gpt2(tokens, merges=(), **more):
    kinds = [3 if token.startswith("<|") else 1 for token in tokens]
    more = {f"tokenizer.ggml.{key}": value for key, value in more.items()}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.token_type": kinds,
    } | more


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["it", "'s", " ", " WE", "'", "LL", " 12345", "!?", "\n", "\n", "x"]),
        ("smollm", ["it", "'s", " ", " WE", "'", "LL", " ", "1", "2", "3", "4", "5", "!?", "\n", "\n", "x"]),
        ("llama-bpe", ["it", "'s", " ", " WE", "'LL", " ", "123", "45", "!?\n\n", "x"]),
        ("qwen2", ["it", "'s", " ", " WE", "'LL", " ", "1", "2", "3", "4", "5", "!?\n\n", "x"]),
    ],
)
def test_pre_tokenizers_cut_where_the_published_ones_do(pre, pieces):
    tokenizer = gguf_tokenizer.from_metadata(gpt2(["a"], pre=pre), "m.gguf")
    cuts = tokenizer._backend.pre_tokenizer.pre_tokenize_str("it's  WE'LL 12345!?\n\nx")
    assert [piece.replace("Ġ", " ").replace("Ċ", "\n") for piece, _ in cuts] == pieces


def test_start_token_where_the_file_or_its_kind_asks(folder):
    tokens = ["<|bos|>", "<|eos|>", "a"]
    ids = {"bos_token_id": 0, "eos_token_id": 1}
    for more, expected in (
        ({"pre": "gpt-2"}, [2]),
        ({"pre": "llama-bpe"}, [0, 2]),
        ({"pre": "llama-bpe", "add_bos_token": False}, [2]),
        ({"pre": "gpt-2", "add_bos_token": True, "add_eos_token": True}, [0, 2, 1]),
    ):
        tokenizer = gguf_tokenizer.from_metadata(gpt2(tokens, **ids, **more), "m.gguf")
        assert tokenizer.encode("a") == expected
        assert tokenizer.encode("a", add_special_tokens=False) == [2]
        assert tokenizer.encode("a<|eos|>", add_special_tokens=False) == [2, 1]
        assert tokenizer.decode([0, 2, 1]) == "a"


def test_sentencepiece_joins_the_best_scored_pair_first():
    pieces = {"<unk>": 2, "<s>": 3, "</s>": 3} | {f"<0x{byte:02X}>": 6 for byte in range(256)}
    scored = {"▁": -9, "a": -9, "b": -9, "c": -9, "bc": -1, "ab": -2, "▁a": -3, "abc": -4}
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*pieces, *scored],
        "tokenizer.ggml.scores": [0.0] * len(pieces) + [float(score) for score in scored.values()],
        "tokenizer.ggml.token_type": [*pieces.values(), *[1] * len(scored)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    tokenizer = gguf_tokenizer.from_metadata(metadata, "m.gguf")
    tokens = metadata["tokenizer.ggml.tokens"]

    def encoded(text):
        return [tokens[id] for id in tokenizer.encode(text)]

    assert encoded("abc") == ["<s>", "▁a", "bc"]  # bc leads, then ▁a comes before abc
    assert encoded("ab b") == ["<s>", "▁", "ab", "▁", "b"]
    assert encoded("é</s>") == ["<s>", "▁", "<0xC3>", "<0xA9>", "</s>"]
    for text in ("abc", " a  b", "é 안녕"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
