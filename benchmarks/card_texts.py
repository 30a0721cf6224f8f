"""Does a model say on a GPU what it says on a CPU in float32, and where it does not, was it a tie?

20 prompts, side by side, once greedy and once drawn with a seed each (the noise is the same everywhere, to the bit).
Three engines take part: the CPU in float32 and plain torch, which is right by definition; the card, through its own
kernels and graphs; and, as a yardstick, the CPU in the card's type and plain torch, which shows what that type comes
to when every kernel is right. First the CPU and the card speak freely. Then the CPU's text is dictated to all three,
so that every position has the same past, and their logits are compared.

*shift* of a position: by how much its logits differ from the CPU's, as their standard deviation over the vocabulary,
which a constant added to all does not change. *yardstick*: the shift of the type itself, on the CPU. In float32 there
is no such run: it is that of bfloat16 times 2^-10, for float32 has 16 bits more and may lose 6 of them in sums of a
thousand terms, taken in another order, and in quick exponentials.

The first difference of a text is a *tie* if its *margin*, by which the CPU prefers its own token to the card's, is at
most 6 times the yardstick of that position, or its median if that is more (over the temperature); otherwise it is
*corrupt*. Two logits that are off by one yardstick each, independently, are 1.4 apart from where they were: 6 are then
more than 4 standard deviations. A position whose shift is more than twice the largest yardstick is corrupt as well,
whatever was said there.

The last line printed is one JSON object, with every difference; the exit status is 1 if anything was corrupt.

    python benchmarks/card_texts.py [--model smollm2-135m | FILE.gguf] [--dtype bfloat16] [--tokens 48]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from typing import Any, NamedTuple

import torch

import pellucid
from pellucid import LLM, SamplingParams
from pellucid.attention import KVStorage, attention_backend
from pellucid.engine.config import SchedulerConfig
from pellucid.engine.core import EngineCore
from pellucid.engine.scheduler import Scheduler
from pellucid.kv.manager import KVManager
from pellucid.model import LoadedModel, load
from pellucid.plan import Request, StepPlan
from pellucid.runtime.dictated import DictatedModel, Dictation
from pellucid.runtime.noise import gumbel_noise, stream_key
from pellucid.runtime.runner import Runner
from report import Figure, print_json, show

BLOCK_SIZE, NUM_BLOCKS = 16, 600
IN_FLOAT32 = 2.0**-10
FAR, OFF = 6, 2
"""In yardsticks: the largest margin of a tie, and the largest shift of a position; see above of which."""

SYSTEM = (
    "You are a careful assistant who answers in a few plain sentences, and says so when a question cannot be answered."
)
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):\n    ",
    "Water boils at a lower temperature on a mountain because",
    "The three primary colours are",
    "Dear Professor,\n\nI am writing to ask whether",
    "1, 1, 2, 3, 5, 8, 13,",
    "To bake bread you need",
    "The opposite of cold is",
    "In 1969, the first people",
    f"{SYSTEM}\n\nQuestion: Why is the sky blue?\nAnswer:",
    f"{SYSTEM}\n\nQuestion: What is a prime number?\nAnswer:",
    f"{SYSTEM}\n\nQuestion: How does a bicycle stay upright?\nAnswer:",
    f"{SYSTEM}\n\nQuestion: Who wrote the play Hamlet?\nAnswer:",
    f"{SYSTEM}\n\nQuestion: What is the use of a page table?\nAnswer:",
    "SELECT name, age FROM people WHERE",
    "The mitochondria are",
    "Bonjour, je m'appelle",
    "<html>\n<head>\n<title>",
    " ".join(["A pool of blocks is shared by many requests, and each has a table of its own."] * 12) + " Therefore",
)


class Work(NamedTuple):
    """Prompts, and how each is answered."""

    prompts: list[list[int]]
    temperature: float
    tokens: int

    def sampling(self, index: int) -> SamplingParams:
        return SamplingParams(temperature=self.temperature, seed=index, max_tokens=self.tokens, ignore_eos=True)

    def scores(self, index: int, logits: torch.Tensor) -> torch.Tensor:
        """What each token of prompt ``index`` is the best of: its ``logits`` [tokens, vocab_size], or with noise."""
        if not self.temperature:
            return logits
        first = len(self.prompts[index])
        keys = [stream_key(index, position) for position in range(first, first + len(logits))]
        return logits / self.temperature + gumbel_noise(keys, logits.shape[1], logits.device)


class Difference(NamedTuple):
    """The first token that the card says otherwise. ``shift`` is how far the card moved the two apart."""

    way: str
    prompt: int
    position: int
    said: str
    on_card: str
    margin: float
    shift: float
    verdict: str


def speak(loaded: LoadedModel, work: Work) -> list[list[int]]:
    """The text of each prompt, by an engine as it comes."""
    llm = LLM(loaded, block_size=BLOCK_SIZE, num_gpu_blocks_override=NUM_BLOCKS, max_num_seqs=len(work.prompts))
    params = [work.sampling(index) for index in range(len(work.prompts))]
    return [list(output.outputs[0].token_ids) for output in llm.generate(work.prompts, params, use_tqdm=False)]


def dictate(loaded: LoadedModel, work: Work, texts: list[list[int]]) -> list[torch.Tensor]:
    """For each prompt the logits [tokens, vocab_size], float32 on the CPU, from which each token of its text came."""
    heard: dict[str, list[torch.Tensor]] = {str(index): [] for index in range(len(texts))}
    names: dict[int, str] = {}

    def hear(plan: StepPlan, logits: torch.Tensor) -> None:
        names.update((admission.handle, admission.name) for admission in plan.admitted)
        sampling = [handle for handle, samples in zip(plan.handles, plan.samples, strict=True) if samples]
        for handle, row in zip(sampling, logits.cpu(), strict=True):
            heard[names[handle]].append(row)

    core = dictating_engine(loaded, dict(zip(heard, texts, strict=True)), hear)
    for index, prompt in enumerate(work.prompts):
        core.add(Request(name=str(index), prompt=tuple(prompt), sampling=work.sampling(index)))
    while core.has_unfinished_requests():
        core.step()
    return [torch.stack(rows) for rows in heard.values()]


def dictating_engine(loaded: LoadedModel, outputs: dict[str, list[int]], hear: Any) -> EngineCore:
    config, place, rows = loaded.config, loaded.model.device, len(outputs)
    limits = {"max_num_seqs": rows, "max_num_batched_tokens": 2048, "max_model_len": (NUM_BLOCKS - 1) * BLOCK_SIZE}
    sizes = (config.num_layers, NUM_BLOCKS, BLOCK_SIZE, config.num_kv_heads, config.head_dim)
    storage = KVStorage(*sizes, loaded.model.dtype, place)
    name = "reference" if loaded.model.ops.name == "torch" else "auto"
    attention = attention_backend(name, place, loaded.model.dtype, config.head_dim)
    model = DictatedModel(loaded.model, rows)
    runner: Any = Runner(model, storage, attention, compiled_sampling=False)
    if attention.name == "triton":
        from pellucid.runtime.device_runner import DeviceRunner

        runner = DeviceRunner(model, storage, attention, **limits)
    executor = Dictation(runner, model, outputs, every_row=attention.name == "triton", on_logits=hear)
    schedule = SchedulerConfig(**limits, eos_token_ids=(), vocab_size=config.vocab_size)
    return EngineCore(Scheduler(KVManager(NUM_BLOCKS, BLOCK_SIZE), schedule), executor, asynchronous=False)


def shifts(logits: list[torch.Tensor], right: list[torch.Tensor]) -> torch.Tensor:
    """The shift of every position, [prompts, tokens]."""
    return torch.stack([(mine - theirs).std(1) for mine, theirs in zip(logits, right, strict=True)])


class Comparison:
    """What one way of answering comes to on the card, beside the CPU."""

    def __init__(self, way: str, work: Work, cpu: LoadedModel, typed: LoadedModel, card: LoadedModel) -> None:
        self.way, self.work, self._cpu = way, work, cpu
        self.texts, self.on_card = speak(cpu, work), speak(card, work)
        self.right, self.logits = dictate(cpu, work, self.texts), dictate(card, work, self.texts)
        self.shifts = shifts(self.logits, self.right)
        finer = IN_FLOAT32 if card.model.dtype is torch.float32 else 1.0
        self.yardsticks = finer * shifts(dictate(typed, work, self.texts), self.right)
        self.yardstick = self.yardsticks.max().item()

    def differences(self) -> list[Difference]:
        return [found for index in range(len(self.texts)) if (found := self._difference(index)) is not None]

    def off(self) -> int:
        """Positions that are corrupt by their shift."""
        return int((self.shifts > OFF * self.yardstick).sum())

    def _difference(self, index: int) -> Difference | None:
        pairs = enumerate(zip(self.texts[index], self.on_card[index], strict=True))
        at, (ours, theirs) = next(((at, pair) for at, pair in pairs if pair[0] != pair[1]), (0, (0, 0)))
        if ours == theirs:
            return None
        right = self.work.scores(index, self.right[index])[at]
        card = self.work.scores(index, self.logits[index])[at]
        margin, on_card = (float(scores[ours] - scores[theirs]) for scores in (right, card))
        yardstick = max(self.yardsticks[index, at].item(), self.yardsticks.median().item())
        far = FAR * yardstick / (self.work.temperature or 1.0)
        words = [self._word(token) for token in (ours, theirs)]
        verdict = "tie" if margin <= far else "corrupt"
        return Difference(self.way, index, at, *words, round(margin, 6), round(margin - on_card, 6), verdict)

    def _word(self, token: int) -> str:
        return self._cpu.tokenizer.decode([token]) if self._cpu.tokenizer else str(token)


def figures_of(comparison: Comparison, differences: list[Difference]) -> list[Figure]:
    way, found = comparison.way, [difference for difference in differences if difference.way == comparison.way]
    corrupt = sum(difference.verdict == "corrupt" for difference in found) + comparison.off()
    return [
        Figure(f"{way}_positions", comparison.shifts.numel(), ""),
        Figure(f"{way}_yardstick", 1e6 * comparison.yardstick, "1e-6"),
        Figure(f"{way}_shift_median", comparison.shifts.median().item() / comparison.yardstick, "of it"),
        Figure(f"{way}_shift_most", comparison.shifts.max().item() / comparison.yardstick, "of it", target=OFF),
        Figure(f"{way}_ties", sum(difference.verdict == "tie" for difference in found), ""),
        Figure(f"{way}_corrupt", corrupt, "", target=0),
    ]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a name, a folder or a .gguf file")
    parser.add_argument("--device", default="cuda", help="where the card is: cuda, or cpu to compare that with itself")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--kernels", default="auto", help="of the card")
    parser.add_argument("--tokens", type=int, default=48, help="output tokens a prompt (default 48)")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many of the 20 prompts (default all)")
    parser.add_argument("--temperature", type=float, default=0.8, help="of the texts that are drawn (default 0.8)")
    return parser.parse_args()


def main() -> None:
    options = parse()
    typed = "bfloat16" if options.dtype == "float32" else options.dtype
    cpu = load(options.model, dtype="float32", kernels="torch")
    yardstick = load(options.model, dtype=typed, kernels="torch")
    card = load(options.model, dtype=options.dtype, device=options.device, kernels=options.kernels)
    assert cpu.tokenizer is not None
    prompts = [cpu.tokenizer.encode(prompt) for prompt in PROMPTS[: options.prompts]]
    differences: list[Difference] = []
    figures: list[Figure] = []
    for way, temperature in (("greedy", 0.0), ("drawn", options.temperature)):
        comparison = Comparison(way, Work(prompts, temperature, options.tokens), cpu, yardstick, card)
        differences += comparison.differences()
        figures += figures_of(comparison, differences)
    for difference in differences:
        print(*(f"{name} {value!r}" for name, value in difference._asdict().items()), flush=True)
    for figure in figures:
        show(figure)
    place = card.model.device
    facts = {"card": torch.cuda.get_device_name(place) if place.type == "cuda" else "none", "dtype": options.dtype}
    versions = {"torch": importlib.metadata.version("torch"), "pellucid": pellucid.__version__}
    told = [difference._asdict() for difference in differences]
    print_json("card_texts", figures, **facts, model=options.model, versions=versions, differences=told)
    sys.exit(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    main()
