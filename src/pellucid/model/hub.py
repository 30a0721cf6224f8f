"""Models of the Hugging Face hub: from its local cache if they are there, else downloaded into it."""

from __future__ import annotations

from pathlib import Path

from pellucid.errors import ModelError, ModelNotFound
from pellucid.model.folder import FolderCheckpoint

_SETTINGS = ["*.json", "chat_template.jinja"]
_TIMEOUT_S = 5.0


def checkpoint(hub_id: str, *, with_weights: bool) -> FolderCheckpoint:
    """The model ``hub_id`` (``organisation/name``); its weights are downloaded only if they are wanted.

    Raises `ModelNotFound` in one sentence if it is neither in the local cache nor to be had, and
    `ModelError` if what is in the cache cannot be run and the hub cannot be asked for the rest.
    """
    from huggingface_hub import HfApi, snapshot_download  # takes a while to import, and most models are local

    wanted = [*_SETTINGS, "*.safetensors"] if with_weights else _SETTINGS
    try:
        cached = snapshot_download(hub_id, allow_patterns=wanted, local_files_only=True)
        return _complete(Path(cached), hub_id, with_weights)
    except ModelError as error:
        cut_short: ModelError | None = error  # there, but only a part of it
    except (OSError, ValueError):
        cut_short = None
    try:
        HfApi().model_info(hub_id, timeout=_TIMEOUT_S)  # a hub that never answers must not hold us up
        folder = snapshot_download(hub_id, allow_patterns=wanted, etag_timeout=_TIMEOUT_S)
    except Exception as error:  # the client lets through whatever its HTTP library raises
        if cut_short is not None:
            raise cut_short from None
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelNotFound(
            f"The model {hub_id!r} is not in the local Hugging Face cache and the hub did not give it ({reason}); "
            "check the name and the network, or use a local folder, a .gguf file, smollm2-135m or tiny."
        ) from None
    return _complete(Path(folder), hub_id, with_weights)


def _complete(folder: Path, hub_id: str, with_weights: bool) -> FolderCheckpoint:
    found = FolderCheckpoint(folder, name=hub_id)
    if with_weights:
        found.weights()  # reads the headers: a missing shard shows here
    return found
