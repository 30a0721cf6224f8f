"""A checkpoint that is not whole is refused, naming file, tensor and numbers, before any memory is taken."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from pellucid.errors import ModelError
from pellucid.model import load


@pytest.fixture
def single(qwen2, tmp_path):
    """A copy of a one-file checkpoint that may be damaged."""
    return shutil.copytree(qwen2.folder, tmp_path / "single")


@pytest.fixture
def sharded(llama, tmp_path):
    return shutil.copytree(llama.folder, tmp_path / "sharded")


def refusal(folder):
    with pytest.raises(ModelError) as caught:
        load(str(folder))
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


def edit(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def test_truncated_data(single):
    path = single / "model.safetensors"
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-100])
    assert f"the file has {whole - 100:,} bytes" in refusal(single)
    assert "truncated: the tensor 'model." in refusal(single)


@pytest.mark.parametrize("kept", [0, 5, 8, 200])
def test_truncated_header(single, kept):
    path = single / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    assert f"{path} is truncated: its header needs" in refusal(single)
    assert f"the file has {kept} bytes" in refusal(single)


def test_damaged_header(single):
    path = single / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[8:20] = b"x" * 12
    path.write_bytes(data)
    assert f"{path} is damaged: its header is not that of a safetensors file" in refusal(single)


def test_sizes_that_contradict_the_shape(single):
    path = single / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"shape":[96,32]', b'"shape":[96,31]', 1))
    assert "of shape [96, 31] and type F32 cannot take 12,288 bytes" in refusal(single)


def test_missing_shard(sharded):
    gone = sorted(sharded.glob("model-*.safetensors"))[2]
    gone.unlink()
    assert f"shards are missing: {gone.name}." in refusal(sharded)
    assert "1 of " in refusal(sharded)


def test_shard_without_its_tensor(sharded):
    path = sharded / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    name = next(iter(index["weight_map"]))
    others = [shard for shard in index["weight_map"].values() if shard != index["weight_map"][name]]
    index["weight_map"][name] = others[0]
    path.write_text(json.dumps(index))
    assert f"{sharded / others[0]}: the tensor {name!r} is missing, though" in refusal(sharded)


def test_index_may_not_point_outside_the_folder(sharded):
    path, shard = sharded / "model.safetensors.index.json", sorted(sharded.glob("model-*.safetensors"))[0]
    shutil.copy(shard, sharded.parent / "outside.safetensors")
    path.write_text(path.read_text().replace(shard.name, "../outside.safetensors"))
    assert "shards are missing: ../outside.safetensors" in refusal(sharded)


def test_missing_tensors(single):
    edit(single, lambda tensors: [tensors.pop(f"model.layers.1.mlp.{name}_proj.weight") for name in ("up", "down")])
    assert "the tensor 'model.layers.1.mlp.up_proj.weight' is missing (and 1 more of" in refusal(single)


def test_wrong_shape(single):
    edit(single, lambda tensors: tensors.update({"model.norm.weight": torch.ones(33)}))
    assert "the tensor 'model.norm.weight' has shape [33], but the model's configuration asks for [32]" in refusal(
        single
    )


def test_tensor_without_a_place(single):
    edit(single, lambda tensors: tensors.update({"model.layers.0.self_attn.o_proj.bias": torch.ones(32)}))
    assert "'model.layers.0.self_attn.o_proj.bias' has no place in this architecture" in refusal(single)


def test_harmless_extra_tensors(single):
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4), "lm_head.weight": torch.ones(96, 32)}
    edit(single, lambda tensors: tensors.update(extra))
    assert load(str(single)).config.tie_embeddings


def test_unsupported_type(single):
    edit(single, lambda tensors: tensors.update({"model.norm.weight": torch.ones(32, dtype=torch.int64)}))
    assert "the tensor 'model.norm.weight' is of type I64; supported: F32, F16, BF16" in refusal(single)


def test_stored_in_half_precision(single, logits):
    half = {name: tensor.bfloat16() for name, tensor in load_file(single / "model.safetensors").items()}
    rounded = {name: tensor.float() for name, tensor in half.items()}
    save_file(half, single / "model.safetensors")
    from_half = logits(load(str(single)).model, [3, 1, 4])
    save_file(rounded, single / "model.safetensors")
    assert torch.equal(from_half, logits(load(str(single)).model, [3, 1, 4]))


def test_pickled_weights_are_never_opened(single):
    (single / "model.safetensors").rename(single / "pytorch_model.bin")
    assert "only pickled weights (pytorch_model.bin)" in refusal(single)
    assert "convert them to safetensors first" in refusal(single)


def test_no_weights_at_all(single):
    (single / "model.safetensors").unlink()
    assert "holds no weights: neither model.safetensors nor model.safetensors.index.json" in refusal(single)
