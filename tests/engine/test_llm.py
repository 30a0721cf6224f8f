"""The engine as a user drives it, on the `tiny` model."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pellucid import LLM, SamplingParams
from pellucid.errors import ConfigError, DuplicateRequest, FinishedRequest, RequestError, UnknownRequest
from pellucid.model import LoadedModel

Make = Callable[..., LLM]
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


def drain(llm: LLM) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {}
    while llm.has_unfinished_requests():
        for output in llm.step():
            tokens[output.request_id] = output.outputs[0].token_ids
    return tokens


def test_generate_returns_outputs_in_the_order_of_the_prompts(engine: Make) -> None:
    llm = engine()
    prompts = ["one", [1, 2, 3], {"prompt": "three"}, {"prompt_token_ids": [4, 5]}]
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (9, 3, 5, 1)]
    outputs = llm.generate(prompts, params)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [9, 3, 5, 1]
    assert [output.prompt for output in outputs] == ["one", None, "three", None]
    assert outputs[1].prompt_token_ids == [1, 2, 3]
    assert all(output.finished and output.outputs[0].finish_reason == "length" for output in outputs)
    assert not llm.has_unfinished_requests()
    assert llm.kv.snapshot().pool.held == 0


def test_one_prompt_of_any_form_is_one_output(engine: Make) -> None:
    llm = engine()
    for prompt in ("text", [1, 2, 3], (1, 2, 3), {"prompt_token_ids": [1, 2, 3]}):
        assert len(llm.generate(prompt, GREEDY)) == 1
    assert llm.generate([], GREEDY) == []


def test_cached_tokens_are_a_number_from_the_first_token_on(engine: Make) -> None:
    llm = engine(block_size=4)
    prompt = list(range(10, 23))
    assert llm.generate([prompt], GREEDY)[0].num_cached_tokens == 0
    llm.add_request("again", prompt, GREEDY)
    (first,) = llm.step()
    assert (first.num_cached_tokens, first.finished) == (12, False)
    assert llm.kv.explain("again").hit == 12


def test_step_by_step_and_table_by_the_callers_name(engine: Make) -> None:
    llm = engine(block_size=4, max_num_seqs=1)
    llm.add_request("a", [1, 2, 3, 4, 5], SamplingParams(temperature=0, max_tokens=2, ignore_eos=True))
    llm.add_request("a-b", [6], GREEDY)
    assert llm.kv.table("a") == ()
    llm.step()
    assert llm.kv.table("a") == (1, 2)
    assert llm.kv.table("a-b") == ()  # waits: one at a time
    llm.step()
    with pytest.raises(FinishedRequest, match=r"'a' finished in step 2; its last table was \(1, 2\)"):
        llm.kv.table("a")
    with pytest.raises(UnknownRequest, match=r"no request is named 'nobody'.*live: a-b"):
        llm.kv.table("nobody")


def test_asynchronous_stepping_lags_by_one(engine: Make) -> None:
    llm = engine(async_scheduling=True)
    llm.add_request("R1", [1, 2, 3], SamplingParams(temperature=0, max_tokens=2, ignore_eos=True))
    assert llm.step() == []
    assert llm.kv.table("R1") != ()
    (output,) = llm.step()
    assert len(output.outputs[0].token_ids) == 1
    assert llm.kv.table("R1") != ()  # both steps are launched, the second is not committed
    assert llm.has_unfinished_requests()
    (output,) = llm.step()
    assert output.finished
    with pytest.raises(FinishedRequest):
        llm.kv.table("R1")
    assert not llm.has_unfinished_requests()
    assert llm.step() == []


def test_generate_leaves_other_requests_their_outputs(engine: Make) -> None:
    alone = engine().generate([[7, 8, 9]], GREEDY)[0].outputs[0].token_ids
    llm = engine()
    llm.add_request("mine", [7, 8, 9], GREEDY)
    llm.generate([[1, 2, 3]], SamplingParams(temperature=0, max_tokens=20, ignore_eos=True))
    assert llm.has_unfinished_requests()
    (output,) = llm.step()
    assert output.request_id == "mine"
    assert output.outputs[0].token_ids == alone
    assert not llm.has_unfinished_requests()


@pytest.mark.parametrize("length", range(1, 12))
def test_a_step_after_generate_may_commit_two_tokens_of_one_request(engine: Make, length: int) -> None:
    mine = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
    alone = engine().generate([[7, 8, 9]], mine)[0].outputs[0]
    llm = engine()
    llm.add_request("mine", [7, 8, 9], mine)
    llm.generate([[1, 2, 3]], SamplingParams(temperature=0, max_tokens=5, ignore_eos=True))
    last = []
    while llm.has_unfinished_requests():
        last = llm.step() or last
    (output,) = last
    assert output.finished
    assert (output.outputs[0].token_ids, output.outputs[0].text) == (alone.token_ids, alone.text)


def test_a_refused_prompt_leaves_nothing_behind(engine: Make) -> None:
    llm = engine()
    with pytest.raises(RequestError, match="empty prompt"):
        llm.generate([[1, 2, 3], []], GREEDY)
    assert not llm.has_unfinished_requests()
    assert llm.kv.snapshot().pool.taken == 0
    assert len(llm.generate([[1, 2, 3]], GREEDY)) == 1


def test_abort_returns_what_there_is_and_spares_the_others(engine: Make) -> None:
    expected = engine().generate([[4, 5, 6]], GREEDY)[0].outputs[0].token_ids
    llm = engine()
    llm.add_request("gone", [1, 2, 3], GREEDY)
    llm.add_request("stays", [4, 5, 6], GREEDY)
    llm.step()
    partial = llm.abort_request("gone")
    assert (partial.outputs[0].finish_reason, len(partial.outputs[0].token_ids)) == ("abort", 1)
    assert drain(llm) == {"stays": expected}
    with pytest.raises(FinishedRequest):
        llm.abort_request("gone")
    with pytest.raises(UnknownRequest):
        llm.abort_request("never")
    assert llm.kv.snapshot().pool.held == 0


def test_two_live_requests_may_not_share_a_name_and_a_finished_one_may_be_followed(engine: Make) -> None:
    llm = engine()
    llm.add_request("x", [1, 2], GREEDY)
    with pytest.raises(DuplicateRequest, match="already named 'x'"):
        llm.add_request("x", [3, 4], GREEDY)
    first = drain(llm)["x"]
    llm.add_request("x", [1, 2], GREEDY)
    assert drain(llm)["x"] == first


@pytest.mark.parametrize(
    ("prompt", "sampling", "words"),
    [
        ([], GREEDY, "empty prompt"),
        ([1] * 64, GREEDY, r"64 tokens.*max_model_len=64.*shorten it to 63"),
        ([1, 100_000], GREEDY, r"token id 100000 in its prompt.*vocabulary of 260"),
        ([1, -1], GREEDY, r"token id -1 in its prompt"),
        ([1], SamplingParams(stop_token_ids=(99_999,)), r"token id 99999 in its stop_token_ids"),
        ([1, 2.5], GREEDY, r"has 2\.5 in its prompt"),
        ([1, True], GREEDY, "has True in its prompt"),
        ([True, 1], GREEDY, "not list"),
        (5, GREEDY, "not int"),
        ({"prompt": "a", "image": 1}, GREEDY, "no field 'image'"),
        ({"prompt": "a", "cache_salt": 5}, GREEDY, "cache_salt must be a string, not 5"),
        ([1], {"temperature": 0}, "sampling_params must be a SamplingParams"),
    ],
)
def test_refusals_name_the_numbers_and_harm_nobody(
    engine: Make, prompt: object, sampling: SamplingParams, words: str
) -> None:
    expected = engine().generate([[7, 8]], GREEDY)[0].outputs[0].token_ids
    llm = engine(max_model_len=64)
    llm.add_request("healthy", [7, 8], GREEDY)
    llm.step()
    before = llm.kv.snapshot()
    with pytest.raises(RequestError, match=words):
        llm.add_request("bad", prompt, sampling)
    assert llm.kv.snapshot() == before
    assert drain(llm) == {"healthy": expected}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"block_sise": 16}, "no option 'block_sise'; did you mean 'block_size'"),
        ({"block_size": 24}, "block_size.*power of two from 1 to 256"),
        ({"block_size": "16"}, "Expected `int`"),
        ({"num_gpu_blocks_override": 1}, "block 0 is reserved"),
        ({"num_gpu_blocks_override": 80, "max_model_len": 2000}, r"max_model_len=2000 needs 126 blocks.*fits is 1264"),
        ({"max_model_len": 4000}, r"max_model_len=4000 is more than the model's 2048"),
        ({"num_gpu_blocks_override": 10**9}, "GiB"),
        ({"num_gpu_blocks_override": 80, "kv_cache_tokens": 100}, "all give the pool's size"),
        ({"reuse_policy": "lifo"}, "free-first, vllm-0.23, vllm-0.24"),
        ({"scheduling_policy": "fair"}, "fcfs, priority"),
        ({"attention_backend": "magic"}, "magic"),
        ({"dtype": "int3"}, "int3"),
        ({"device": "tpu"}, "tpu"),
        ({"gpu_memory_utilization": 1.5}, r"\(0, 1\]"),
        ({"max_num_seqs": 0}, "at least 1"),
        ({"device": "cuda"}, "cuda"),
        ({"load_format": "pickle"}, "load_format must be 'auto' or 'dummy', not 'pickle'"),
        ({"journal_capacity": 0}, "journal_capacity must be at least 1 act, not 0"),
        ({"num_gpu_blocks_override": 2, "block_size": 1}, "1 usable slot"),
    ],
)
def test_engine_options_are_refused_in_one_sentence(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        LLM("tiny", **options)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith("..")


def test_the_pool_may_be_given_in_blocks_tokens_or_bytes(engine: Make) -> None:
    blocks = engine(num_gpu_blocks_override=11)
    tokens = engine(kv_cache_tokens=160)
    nbytes = engine(kv_cache_memory_bytes=blocks.pool.nbytes)
    assert [llm.kv.snapshot().pool.total for llm in (blocks, tokens, nbytes)] == [11, 11, 11]
    memory = blocks.kv.memory()
    assert memory is not None
    assert memory.nbytes == blocks.pool.nbytes


def test_max_model_len_defaults_to_what_the_pool_holds(engine: Make) -> None:
    assert engine(num_gpu_blocks_override=11).pool.max_model_len == 160
    assert engine(num_gpu_blocks_override=1000).pool.max_model_len == 2048


def test_unknown_sampling_values_are_refused() -> None:
    for options, words in (
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"min_p": 2}, "min_p"),
        ({"top_k": -2}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens=9"),
        ({"stop": ["a"]}, "no option 'stop'; did you mean 'stop_token_ids'"),
        ({"stop_token_ids": 5}, "stop_token_ids must be a list"),
        ({"temprature": 1}, "no option 'temprature'; did you mean 'temperature'"),
        ({"temperature": "hot"}, "temperature must be int or float, not 'hot'"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids must be int, not 'a'"),
    ):
        with pytest.raises(RequestError, match=words):
            SamplingParams(**options)


def test_stop_tokens_minimum_and_end_token(engine: Make) -> None:
    llm = engine()
    free = llm.generate([[3, 1, 4]], SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))[0].outputs[0]
    stop = free.token_ids[2]
    cut = free.token_ids.index(stop) + 1
    stopping = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop_token_ids=(stop,))
    completion = llm.generate([[3, 1, 4]], stopping)[0].outputs[0]
    assert completion.token_ids == free.token_ids[:cut]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", stop)
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop_token_ids=(stop,), min_tokens=cut + 3)
    later = llm.generate([[3, 1, 4]], params)[0].outputs[0]
    assert stop not in later.token_ids[: cut + 3]
    assert len(later.token_ids) >= cut + 3


def test_chat_uses_the_models_template(engine: Make) -> None:
    llm = engine()
    messages = [{"role": "user", "content": "hello"}]
    text = llm.get_tokenizer().apply_chat_template(messages, add_generation_prompt=True)
    (output,) = llm.chat(messages, GREEDY)
    assert output.prompt_token_ids == llm.get_tokenizer().encode(text, add_special_tokens=False)
    assert len(llm.chat([messages, messages], GREEDY)) == 2


@pytest.mark.parametrize(
    "messages",
    [
        "hi",
        [["x"]],
        [{"role": "user"}],
        {"role": "user", "content": "x"},
        [],
        [[]],
        5,
        [{"role": "user", "content": "x"}, 5],
    ],
)
def test_messages_of_another_form_are_refused(engine: Make, messages: object) -> None:
    with pytest.raises(RequestError, match=r'messages are a list of \{"role": ..., "content": ...\}'):
        engine().chat(messages, GREEDY)


def test_loaded_weights_are_taken_as_they_are(engine: Make, tiny: LoadedModel) -> None:
    assert LLM(tiny, dtype="float32", num_gpu_blocks_override=20).loaded is tiny
    refused = (
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"load_format": "dummy"}, "loaded already"),
        ({"quantization": "gguf"}, "not quantised"),
        ({"kernels": "onednn"}, "'onednn', and the loaded weights are for"),
    )
    for options, words in refused:
        with pytest.raises(ConfigError, match=words):
            LLM(tiny, num_gpu_blocks_override=20, **options)


def test_a_priority_that_is_no_integer_harms_nobody(engine: Make) -> None:
    llm = engine(scheduling_policy="priority", max_num_seqs=1)
    llm.add_request("one", [1, 2], GREEDY)
    with pytest.raises(RequestError, match="'two' has priority 'high'; give it an integer"):
        llm.add_request("two", [1, 2], GREEDY, priority="high")
    llm.add_request("three", [1, 2], GREEDY, priority=-1)
    assert set(drain(llm)) == {"one", "three"}


def test_prompts_and_params_of_the_wrong_kind(engine: Make) -> None:
    llm = engine()
    for prompts, params, words in (
        (None, GREEDY, "not NoneType"),
        ("abc", "greedy", "sampling_params must be a SamplingParams or a list of them, not 'greedy'"),
        (["abc"], [GREEDY, GREEDY], "1 prompts came with 2 sampling_params"),
    ):
        with pytest.raises(RequestError, match=words):
            llm.generate(prompts, params)
    assert not llm.has_unfinished_requests()
