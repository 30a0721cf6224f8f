#!/usr/bin/env bash
# What a GPU has to show of the engine in this folder: whether it is right, most of it at once, then how fast it is, one
# after the other. What each prints is in OUT, one file a command; a line each here, and the exit status is 1 if any failed.
#
#   benchmarks/on_card.sh [right] [short] [long]      (all three if none is named)
#
# MODEL=smollm2-135m or FILE.gguf, real weights, for what is to be right; OUT=a folder (default: a new one);
# LIMIT=900, seconds for any one command; PYTHON=python3, one that has pellucid, pytest and hypothesis.
set -u
MODEL=${MODEL:-smollm2-135m} OUT=$(realpath "${OUT:-$(mktemp -d)}") LIMIT=${LIMIT:-900} PYTHON=${PYTHON:-python3}
[ -e "$MODEL" ] && MODEL=$(realpath "$MODEL")
cd "$(dirname "$0")/.."
PARTS=${*:-right short long}
for part in $PARTS; do
    case $part in right | short | long) ;; *) echo "there is no part $part: right, short or long" >&2; exit 2 ;; esac
done
FAILED=$(mktemp)
export PYTHONPATH="$PWD/src:$PWD/tests:$PWD/benchmarks${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$OUT"
echo "results in $OUT"

ran() { # NAME COMMAND...: its output to a file, its outcome and last words here
    local name=$1 begun=$SECONDS
    shift
    timeout -k 5 "$LIMIT" "$@" >"$OUT/$name" 2>&1
    local status=$?
    [ $status = 0 ] || echo "$name" >>"$FAILED"
    printf '%-14s status %d, %d s: %s\n' "$name" $status $((SECONDS - begun)) "$(grep -v '^{' "$OUT/$name" | tail -1 | cut -c1-150)"
}

right() {
    for dtype in float32 bfloat16; do
        ran "prove-$dtype" "$PYTHON" -m pellucid prove --model "$MODEL" --device cuda --dtype $dtype &
    done
    ran soak "$PYTHON" -m pellucid soak --model "$MODEL" --device cuda --minutes 0.5 --out "$OUT/soak-case" &
    for file in tests/gpu/test_*.py; do
        ran "$(basename "$file" .py)" "$PYTHON" -m pytest -q -p no:cacheprovider "$file" &
    done
    wait
    for dtype in float32 bfloat16; do # by themselves: they compute most on the CPU
        ran "texts-$dtype" "$PYTHON" benchmarks/card_texts.py --model "$MODEL" --dtype $dtype &
    done
    wait
}

short() {
    for shape in smollm2-135m qwen3-0.6b llama-8b; do
        ran "short-$shape" "$PYTHON" benchmarks/gpu.py benchmarks/shapes/$shape
    done
}

long() {
    ran long-smollm2-135m "$PYTHON" benchmarks/gpu.py benchmarks/shapes/smollm2-135m --long 8192
    ran long-llama-8b "$PYTHON" benchmarks/gpu.py benchmarks/shapes/llama-8b --long 32768
}

for part in $PARTS; do
    $part
done
[ ! -s "$FAILED" ]
