"""GGUF files: the same model as in safetensors, and damage named by byte."""

from __future__ import annotations

import random
import shutil
import struct

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf_file import write
from safetensors.torch import load_file, save_file

from pellucid.errors import ModelError
from pellucid.model import find, load
from pellucid.model.gguf import SUPPORTED, GGUFFile
from pellucid.model.rope import frequencies


@pytest.fixture
def qwen2_file(tmp_path, qwen2):
    return write(tmp_path / "qwen2.gguf", qwen2, "qwen2")


def refusal(path):
    with pytest.raises(ModelError) as caught:
        load(str(path))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message


@pytest.mark.parametrize("arch", ["qwen2", "qwen3"])
def test_same_model_as_in_safetensors(tmp_path, request, logits, arch):
    oracle = request.getfixturevalue(arch)
    ours, theirs = load(str(write(tmp_path / "m.gguf", oracle, arch))), load(str(oracle.folder))
    assert torch.equal(logits(ours.model, [5, 4, 3, 2]), logits(theirs.model, [5, 4, 3, 2]))


def test_llama_rows_are_put_back_and_its_rope_table_is_used(tmp_path, llama, logits):
    theirs = load(str(llama.folder))
    config = theirs.config
    plain = frequencies(config.head_dim, config.rope_theta, None)
    table = plain / frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    path = write(tmp_path / "m.gguf", llama, "llama", extra={"rope_freqs.weight": table.numpy()})
    ids = [index % 96 for index in range(150)]
    torch.testing.assert_close(logits(load(str(path)).model, ids), logits(theirs.model, ids), rtol=0, atol=1e-4)


def test_linear_scaling(tmp_path, mistral, logits):
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    path = write(tmp_path / "m.gguf", mistral, "llama", metadata=scaling)
    ids = list(range(90))
    torch.testing.assert_close(
        logits(load(str(path)).model, ids), logits(load(str(mistral.folder)).model, ids), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("kind", [Type.F16, Type.BF16, Type.Q8_0, Type.Q5_1, Type.Q5_0, Type.Q4_1, Type.Q4_0])
def test_quantised_model_is_the_one_with_rounded_weights(tmp_path, qwen2, logits, kind):
    quantised = write(tmp_path / "m.gguf", qwen2, "qwen2", kind=kind)
    rounded = shutil.copytree(qwen2.folder, tmp_path / "rounded")
    weights = load_file(rounded / "model.safetensors")
    for name, weight in weights.items():
        if weight.ndim == 2:
            blocks = gguf.quants.quantize(weight.numpy(), kind)
            weights[name] = torch.from_numpy(gguf.quants.dequantize(blocks, kind))
    save_file(weights, rounded / "model.safetensors")
    ids = [1, 2, 3]
    expected = logits(load(str(rounded)).model, ids)
    assert torch.equal(logits(load(str(quantised)).model, ids), expected)
    assert not torch.equal(logits(load(str(qwen2.folder)).model, ids), expected)


def test_every_supported_type_is_unpacked_as_gguf_does(tmp_path):
    """Random bytes as blocks: more rows than are unpacked at a time, and NaNs among the scales."""
    draw = np.random.default_rng(0)
    writer = gguf.GGUFWriter(tmp_path / "types.gguf", "llama")
    stored = {}
    for name in SUPPORTED:
        block, size = gguf.GGML_QUANT_SIZES[Type[name]]
        blocks = 4096 // block
        stored[name] = draw.integers(0, 256, (300, blocks * size), dtype=np.uint8)
        writer.add_tensor(name, stored[name], raw_dtype=Type[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(tmp_path / "types.gguf")
    for name, rows in stored.items():
        assert file.tensors[name].shape == (300, 4096)
        out = torch.empty(300, 4096)
        with np.errstate(all="ignore"):
            file.copy_to(name, out)
            expected = gguf.quants.dequantize(rows, Type[name])
        np.testing.assert_array_equal(out.numpy(), expected)


def test_end_tokens(tmp_path, qwen2):
    ends = {"tokenizer.ggml.eos_token_id": 5, "tokenizer.ggml.eot_token_id": 6, "tokenizer.ggml.eom_token_id": 5}
    path = write(tmp_path / "m.gguf", qwen2, "qwen2", metadata=ends)
    assert find(str(path)).config.eos_token_ids == (5, 6)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"qwen2.expert_count": 8}, "a mixture of 8 experts is not supported"),
        ({"qwen2.attention.sliding_window": 64}, "a sliding window of 64 tokens is not supported"),
        ({"qwen2.rope.scaling.type": "yarn"}, "rope scaling 'yarn' is not supported"),
        ({"qwen2.rope.dimension_count": 4}, "rotary embedding over only a part of each head"),
        ({"tokenizer.ggml.model": "bert"}, "the tokenizer 'bert' is not supported; supported: gpt2, llama"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "tekken"},
            "the pre-tokenizer 'tekken' is not supported",
        ),
        ({"tokenizer.ggml.model": "gpt2"}, "no tokenizer can be made of its metadata"),
    ],
)
def test_unsupported_features(tmp_path, qwen2, metadata, said):
    assert said in refusal(write(tmp_path / "m.gguf", qwen2, "qwen2", metadata=metadata))


def test_unsupported_architecture(tmp_path, qwen2):
    message = refusal(write(tmp_path / "m.gguf", qwen2, "gemma3"))
    assert "'gemma3' is not supported; supported: llama, qwen2, qwen3 (Mistral" in message


def test_tensor_without_a_place(tmp_path, qwen2):
    message = refusal(write(tmp_path / "m.gguf", qwen2, "qwen2", extra={"output.bias": np.ones(96, np.float32)}))
    assert "'output.bias' has no place in this architecture" in message


@pytest.mark.parametrize(("code", "named"), [(24, "I8"), (38, "number 38")])
def test_unsupported_tensor_type(qwen2_file, code, named):
    data = qwen2_file.read_bytes()
    name = b"blk.1.ffn_up.weight"
    at = data.index(name) + len(name) + 4 + 2 * 8  # the number of axes and two axes come before the type
    qwen2_file.write_bytes(data[:at] + code.to_bytes(4, "little") + data[at + 4 :])
    message = refusal(qwen2_file)
    assert (
        f"the tensor 'blk.1.ffn_up.weight' is of type {named}, which is not supported; supported: F32, F16" in message
    )


def test_truncated_in_the_tensors(qwen2_file):
    data = qwen2_file.read_bytes()
    last = max(GGUFFile(qwen2_file).tensors.values(), key=lambda tensor: tensor.start)
    kept = last.start + last.nbytes - 1
    qwen2_file.write_bytes(data[:kept])
    assert refusal(qwen2_file).endswith(
        f"is truncated: the tensor {last.name!r} lies in bytes {last.start:,} to {kept + 1:,} "
        f"but the file has {kept:,} bytes."
    )


@pytest.mark.parametrize("left", range(9))
def test_a_list_of_strings_that_ends_in_mid_air(tmp_path, left):
    """Its count may be damaged: what is not there is not read as so many empty strings."""
    key, text = b"tokenizer.ggml.tokens", b"x"
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key
    array = struct.pack("<IIQ", 9, 8, 3_000_000) + struct.pack("<Q", len(text)) + text
    path = tmp_path / "cut.gguf"
    path.write_bytes(header + array + struct.pack("<Q", 5)[:left])
    with pytest.raises(ModelError, match=r"truncated or damaged"):
        GGUFFile(path)


def test_truncated_anywhere_in_the_header(qwen2_file):
    data = qwen2_file.read_bytes()
    header = data.index(b"blk.2.ffn_norm.weight")
    for kept in range(0, header, 37):
        qwen2_file.write_bytes(data[:kept])
        message = refusal(qwen2_file)
        assert "is empty" in message if kept == 0 else f"but the file has {kept:,} bytes" in message


def test_damaged_header_is_refused_or_harmless(qwen2_file):
    data = qwen2_file.read_bytes()
    header, draw, refused = data.index(b"blk.2.ffn_norm.weight"), random.Random(0), 0
    for _ in range(100):
        damaged = bytearray(data)
        damaged[draw.randrange(header)] ^= 1 << draw.randrange(8)
        qwen2_file.write_bytes(damaged)
        try:
            load(str(qwen2_file))
        except ModelError:
            refused += 1
    assert refused > 30


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"GGML" + bytes(40), "is not a GGUF file: it begins with b'GGML'"),
        (b"GGUF" + (1).to_bytes(4, "little") + bytes(40), "GGUF version 1 is not supported; supported: 2 and 3"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(40), "(it may be big-endian)"),
    ],
)
def test_other_formats(tmp_path, start, said):
    path = tmp_path / "m.gguf"
    path.write_bytes(start)
    assert said in refusal(path)
