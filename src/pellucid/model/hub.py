"""Models of the Hugging Face hub: from its local cache if they are there, else downloaded into it."""

from __future__ import annotations

from pathlib import Path

from pellucid.errors import ModelError, ModelNotFound
from pellucid.model.folder import FolderCheckpoint
from pellucid.model.weights import Weights

_SETTINGS = ["*.json", "chat_template.jinja"]
_WEIGHTS = ["*.safetensors"]
_TIMEOUT_S = 5.0


class HubCheckpoint(FolderCheckpoint):
    """The model ``hub_id`` (``organisation/name``). Its weights are downloaded when they are asked for.

    Raises `ModelNotFound` in one sentence if it is neither in the local cache nor to be had.
    """

    def __init__(self, hub_id: str) -> None:
        super().__init__(_cached(hub_id) or _download(hub_id, _SETTINGS), name=hub_id)

    def weights(self) -> Weights:
        """Raises `ModelNotFound` if what is in the cache is not all and the hub cannot be asked for the rest."""
        try:
            return super().weights()
        except ModelError as incomplete:
            try:
                self._folder = _download(self.name, _SETTINGS + _WEIGHTS)
            except ModelNotFound:
                raise ModelNotFound(str(incomplete)) from None
        return super().weights()


def _cached(hub_id: str) -> Path | None:
    from huggingface_hub import snapshot_download  # takes a while to import, and most models are local

    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=_SETTINGS, local_files_only=True))
    except (OSError, ValueError):
        return None
    return folder if (folder / "config.json").is_file() else None


def _download(hub_id: str, wanted: list[str]) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    try:
        HfApi().model_info(hub_id, timeout=_TIMEOUT_S)  # a hub that never answers must not hold us up
        return Path(snapshot_download(hub_id, allow_patterns=wanted, etag_timeout=_TIMEOUT_S))
    except Exception as error:  # the client lets through whatever its HTTP library raises
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelNotFound(
            f"The model {hub_id!r} is not in the local Hugging Face cache and the hub did not give it ({reason}); "
            "check the name and the network, or use a local folder, a .gguf file, smollm2-135m or tiny."
        ) from None
