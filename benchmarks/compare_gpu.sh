#!/usr/bin/env bash
# Pellucid and vLLM on one GPU, one after the other at the same work, and Pellucid's figures over vLLM's.
#
#   PELLUCID_VLLM_SITE=DIR benchmarks/compare_gpu.sh MODEL [OPTION …]
#
# MODEL is a folder with a config.json, the options are those that gpu.py and vllm_gpu.py share.
# PELLUCID_VLLM_SITE  a folder with an installed vLLM (0.26.0 was used), for PYTHONPATH; unset: PYTHON has it itself
# PYTHON              the interpreter of both                                   (default: python3)
# LONG                run the long work too, up to so many tokens, e.g. 8192    (default: not)
# OUT                 where the logs go                                         (default: a new temporary folder)
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"

ours() { PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" "$python" "$here/gpu.py" "$@"; }
theirs() { PYTHONPATH="${PELLUCID_VLLM_SITE:-${PYTHONPATH:-}}" "$python" "$here/vllm_gpu.py" "$@"; }

logs() { printf '%s/%s.log' "$out" "$1"; [ -z "${LONG:-}" ] || printf ',%s/%s_long.log' "$out" "$1"; }

for engine in ours theirs; do
    "$engine" "$@" | tee "$out/$engine.log"
    [ -z "${LONG:-}" ] || "$engine" "$@" --long "$LONG" | tee "$out/${engine}_long.log"
done
"$python" "$here/gpu_ratios.py" "$(logs ours)" "$(logs theirs)"
