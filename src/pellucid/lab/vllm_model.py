"""What vLLM can load: a Hugging Face folder or name as it is, and Pellucid's own names and GGUF files made into one."""

from __future__ import annotations

from pathlib import Path

from pellucid.errors import ConfigError

OWN, TOO_SMALL = "smollm2-135m", "tiny"


def vllm_model(name: str) -> str:
    """``name`` as vLLM takes it. Raises `ConfigError` if it would have to be made into a folder and cannot be here."""
    if name == TOO_SMALL:
        raise ConfigError(f"the attention heads of {TOO_SMALL} are too small for vLLM's kernels; {_OTHERS}.")
    if name != OWN and Path(name).suffix != ".gguf":
        return name
    try:
        import torch

        from pellucid.model import find
        from pellucid.model.export import model_folder

        return str(model_folder(find(name), torch.bfloat16))
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"vLLM loads Hugging Face folders, and making one of {name} takes {error.name}, which is not here: "
            f"`pip install {error.name}`, or {_OTHERS}."
        ) from None


_OTHERS = "give --model a Hugging Face folder or a name on the hub"
