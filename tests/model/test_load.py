"""What a user may call a model, and what is said when there is none."""

from __future__ import annotations

import shutil

import huggingface_hub.constants
import pytest
import torch

from pellucid.errors import ConfigError, ModelError
from pellucid.model import find, load


def refusal(spec, **options):
    with pytest.raises(ModelError) as caught:
        load(spec, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("spec", ["smollm3", "", "a/b/c", "two words"])
def test_unknown_names_list_the_forms(spec):
    message = refusal(spec)
    assert f"{spec!r} is not a model that can be found; give smollm2-135m, tiny, a folder with config.json" in message


@pytest.mark.parametrize("spec", ["./none", "../none/x", "/none/x", "none.gguf", "some/none.gguf", "~/none"])
def test_paths_that_are_not_there(spec):
    assert f"There is no file or folder {spec}; give smollm2-135m" in refusal(spec)


def test_other_files_and_folders(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"x")
    assert "weights.bin is not a .gguf file" in refusal(str(tmp_path / "weights.bin"))
    assert "is not a model folder: it has no config.json." in refusal(str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(b"x")
    assert f"to load the GGUF file in it, name it: {tmp_path / 'm.gguf'}." in refusal(str(tmp_path))


def test_names_and_sources(qwen2):
    loaded = load(str(qwen2.folder))
    assert (loaded.name, loaded.source) == (qwen2.folder.name, str(qwen2.folder))
    assert loaded.tokenizer is None
    assert load("tiny").name == "tiny"


def test_config_without_weights(qwen2, tmp_path):
    shutil.copy(qwen2.folder / "config.json", tmp_path)
    checkpoint = find(str(tmp_path))
    assert checkpoint.config == find(str(qwen2.folder)).config
    assert "holds no weights" in refusal(checkpoint)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dtype": "int8"}, "dtype 'int8' is not supported; supported: auto, float32"),
        ({"dtype": torch.float64}, "dtype torch.float64 is not supported"),
        ({"device": "gpu"}, "device 'gpu' is unknown; use auto, cpu or cuda"),
        ({"device": "meta"}, "device 'meta' is not supported"),
        ({"device": "cuda:99"}, "device 'cuda:99' is not there: torch sees"),
        ({"load_format": "pt"}, "load_format must be 'auto' or 'dummy', not 'pt'"),
    ],
)
def test_unknown_options(options, said):
    with pytest.raises(ConfigError) as caught:
        load("tiny", **options)
    assert said in str(caught.value)


@pytest.mark.parametrize("dtype", ["auto", "float", "float32", torch.float32])
def test_spellings_of_a_dtype(dtype):
    assert load("tiny", dtype=dtype).model.dtype == torch.float32


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """An empty hub cache, and no network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def test_hub_id_that_cannot_be_had(hub_cache):
    message = refusal("nobody/no-such-model")
    assert "'nobody/no-such-model' is not in the local Hugging Face cache and the hub did not give it (" in message
    assert message.endswith("or use a local folder, a .gguf file, smollm2-135m or tiny.")


def test_hub_id_in_the_local_cache(hub_cache, qwen2):
    repository = hub_cache / "models--someone--small"
    revision = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(qwen2.folder, repository / "snapshots" / revision)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    loaded = load("someone/small")
    assert loaded.name == "someone/small"
    assert loaded.config.architecture == "Qwen2ForCausalLM"
    (repository / "snapshots" / revision / "model.safetensors").unlink()  # a download that broke off
    assert f"{revision} holds no weights" in refusal("someone/small")
    assert load("someone/small", load_format="dummy").config == loaded.config
