"""Which kernels an engine runs with, what it says about them, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from pellucid import LLM, SamplingParams
from pellucid.errors import ConfigError
from pellucid.model import load
from pellucid.native import SWITCH, native
from pellucid.ops import choose_ops

CPU = torch.device("cpu")
SWITCHED_OFF = f"{SWITCH}=off"
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
HAS_KERNELS = pytest.mark.skipif(native().kernels is None, reason=native().why)
HAS_BFLOAT16 = pytest.mark.skipif(not native().multiplies_bfloat16, reason="no compiled kernels for bfloat16 here")


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As with PELLUCID_KERNELS=off in the environment."""
    monkeypatch.setenv(SWITCH, "off")
    native.cache_clear()
    yield
    monkeypatch.undo()
    native.cache_clear()


def said_at_start(caplog: pytest.LogCaptureFixture, **options: object) -> str:
    """The line about arithmetic."""
    caplog.set_level("INFO", "pellucid")
    LLM("tiny", num_gpu_blocks_override=20, **options)
    return caplog.messages[-1]


@HAS_KERNELS
def test_compiled_kernels_say_what_they_found(caplog: pytest.LogCaptureFixture) -> None:
    assert said_at_start(caplog) == f"float32, compiled kernels ({native().why}); compiled attention"
    assert native().why.startswith("avx512")


@HAS_BFLOAT16
def test_compiled_kernels_in_bfloat16(caplog: pytest.LogCaptureFixture) -> None:
    assert said_at_start(caplog, dtype="bfloat16").startswith("bfloat16, compiled kernels (avx512 avx512_bf16); ")


def test_float16_has_no_compiled_kernels(caplog: pytest.LogCaptureFixture) -> None:
    said = said_at_start(caplog, dtype="float16")
    assert said.startswith("float16, torch; not the compiled kernels: ")
    assert said.endswith("; reference attention")
    if native().kernels is not None:
        assert "there are kernels for float32 and bfloat16, not for float16" in said


def test_torch_on_request(caplog: pytest.LogCaptureFixture) -> None:
    said = said_at_start(caplog, kernels="torch", attention_backend="reference")
    assert said.startswith("float32, torch")
    assert said.endswith("; reference attention")


def test_switched_off_in_a_program_of_its_own() -> None:
    """Nothing is set up there: what is said goes to stderr."""
    program = (
        f"import os; os.environ[{SWITCH!r}] = 'off'\n"
        "from pellucid import LLM, SamplingParams\n"
        "llm = LLM('tiny', num_gpu_blocks_override=20)\n"
        "print(len(llm.generate([[1, 2, 3]], SamplingParams(max_tokens=4, ignore_eos=True))[0].outputs[0].token_ids))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"pellucid: float32, torch; not the compiled kernels: {SWITCHED_OFF}; reference attention\n" in done.stderr
    assert done.stdout == "4\n"


@pytest.mark.usefixtures("off")
def test_switched_off_they_cannot_be_had() -> None:
    with pytest.raises(ConfigError) as caught:
        load("tiny", kernels="compiled")
    assert str(caught.value) == f"The compiled kernels cannot be used: {SWITCHED_OFF}; choose kernels='auto'."
    with pytest.raises(ConfigError, match=f"Compiled attention cannot be used: {SWITCHED_OFF}; choose att"):
        LLM("tiny", attention_backend="compiled")


@pytest.mark.usefixtures("off")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_switched_off_torch_says_why(dtype: torch.dtype) -> None:
    ops = choose_ops("auto", dtype, CPU)
    assert ops.name in ("torch", "onednn")
    assert ops.why.endswith(f"; not the compiled kernels: {SWITCHED_OFF}")


@HAS_KERNELS
def test_kernels_of_another_version_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take addresses: called with other arguments, they would write anywhere."""
    monkeypatch.setattr("pellucid.native.INTERFACE", 99)
    native.cache_clear()
    try:
        assert choose_ops("auto", torch.float32, CPU).why.endswith(", not 99: install it again from kernels/")
    finally:
        native.cache_clear()


@pytest.mark.parametrize(
    ("name", "dtype", "said"),
    [
        ("numpy", torch.float32, "There are no kernels 'numpy'; known: auto, compiled, onednn, torch, triton."),
        ("onednn", torch.float32, "oneDNN has no kernels for bfloat16 here, or dtype is not bfloat16;"),
        pytest.param(
            "compiled", torch.float16, "there are kernels for float32 and bfloat16, not for float16;", marks=HAS_KERNELS
        ),
        pytest.param("compiled", torch.float64, "for float32 and bfloat16, not for float64;", marks=HAS_KERNELS),
    ],
)
def test_what_cannot_be_had_is_refused(name: str, dtype: torch.dtype, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_ops(name, dtype, CPU)
    assert said in str(caught.value)


@HAS_KERNELS
def test_compiled_kernels_are_for_a_cpu() -> None:
    with pytest.raises(ConfigError, match="there are kernels for a CPU, not for cuda"):
        choose_ops("compiled", torch.float32, torch.device("cuda"))


@HAS_KERNELS
def test_compiled_attention_is_refused_for_other_types() -> None:
    """It would take float16 numbers for float32 ones, and read and write twice as far."""
    with pytest.raises(
        ConfigError, match=r"Compiled attention .*: there are kernels for float32 and bfloat16, not for float16;"
    ):
        LLM("tiny", dtype="float16", attention_backend="compiled")


@pytest.mark.parametrize("kernels", ["compiled", "torch"])
@pytest.mark.parametrize("attention", ["compiled", "reference"])
def test_kernels_and_attention_are_chosen_apart(kernels: str, attention: str) -> None:
    """In float32 every pair gives the same tokens: `tiny` decides by far more than rounding."""
    if native().kernels is None and "compiled" in (kernels, attention):
        pytest.skip(native().why)
    options = {"num_gpu_blocks_override": 40, "block_size": 4}
    prompts = [[5, 6, 7, 8, 9, 10], [200, 1, 3]]
    found, expected = (
        [output.outputs[0].token_ids for output in LLM("tiny", **options, **chosen).generate(prompts, GREEDY)]
        for chosen in (
            {"kernels": kernels, "attention_backend": attention},
            {"kernels": "torch", "attention_backend": "reference"},
        )
    )
    assert found == expected


@HAS_KERNELS
def test_batch_invariant_is_what_compiled_kernels_do_all_of() -> None:
    """One product or one attention that is torch's is enough to lose it."""
    for options, expected in (({}, True), ({"kernels": "torch"}, False), ({"attention_backend": "reference"}, False)):
        assert LLM("tiny", num_gpu_blocks_override=20, **options).batch_invariant is expected, options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"quantization": "gguf", "dtype": "float32"},
            "quantization='gguf' multiplies in bfloat16, not float32; leave",
        ),
        ({"quantization": "gguf"}, "quantization='gguf' is for .gguf files, and tiny is none; leave it out."),
        ({"quantization": "awq"}, "quantization 'awq' is not supported; supported: gguf."),
    ],
)
def test_quantisation_that_cannot_be(options: dict[str, str], said: str) -> None:
    for make in (lambda: load("tiny", **options), lambda: LLM("tiny", num_gpu_blocks_override=20, **options)):
        with pytest.raises(ConfigError) as caught:
            make()
        assert said in str(caught.value)


@pytest.mark.model
@pytest.mark.parametrize("kernels", ["compiled", "onednn", "torch"])
def test_quantised_smollm2_knows_the_capital_of_france(kernels: str) -> None:
    try:
        llm = LLM("smollm2-135m", quantization="gguf", kernels=kernels, num_gpu_blocks_override=20)
    except ConfigError as error:
        pytest.skip(str(error))
    assert llm.loaded.model.dtype is torch.bfloat16
    prompts = ["The capital of France is", "1, 2, 3, 4, 5, 6,"]
    france, numbers = (output.outputs[0].text for output in llm.generate(prompts, GREEDY))
    assert "Paris" in france
    assert numbers.startswith(" 7")


@pytest.mark.model
@HAS_BFLOAT16
def test_quantised_smollm2_keeps_the_size_of_its_file() -> None:
    """4-bit weights with two float16 a group take 5 bits, the embedding's 8.5; of 134,515,008 in all."""
    model = load("smollm2-135m", quantization="gguf", kernels="compiled").model
    assert 5 < model.weight_bytes * 8 / 134_515_008 < 6.5
