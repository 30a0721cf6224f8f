"""vLLM's offline API: prompts in, text out, with the tokenizer that scripts expect."""

from __future__ import annotations

from typing import Any

import pytest

import pellucid


def test_generate_gives_what_our_engine_gives(play: Any) -> None:
    ran = play(
        """
        from vllm import LLM, SamplingParams, TokensPrompt
        llm = LLM(model="tiny", num_gpu_blocks_override=20, max_model_len=128)
        params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
        for output in llm.generate(["one", TokensPrompt(prompt_token_ids=[5, 6, 7])], params, use_tqdm=False):
            first = output.outputs[0]
            print(output.request_id, output.prompt, output.finished, first.finish_reason, first.token_ids)
            print(first.logprobs, first.cumulative_logprob, output.prompt_logprobs, output.num_cached_tokens)
        """
    )
    llm = pellucid.LLM("tiny", num_gpu_blocks_override=20, max_model_len=128)
    greedy = pellucid.SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    one, two = (output.outputs[0].token_ids for output in llm.generate(["one", [5, 6, 7]], greedy, use_tqdm=False))
    assert ran.out.splitlines() == [
        f"0 one True length {one}",
        "None None None 0",
        f"1 None True length {two}",
        "None None None 0",
    ]


def test_chat_and_the_tokenizer(play: Any) -> None:
    ran = play(
        """
        from vllm import LLM, SamplingParams
        llm = LLM("tiny", num_gpu_blocks_override=20, max_model_len=128)
        tokenizer = llm.get_tokenizer()
        messages = [{"role": "user", "content": "hi"}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        [output] = llm.chat(messages, SamplingParams(max_tokens=1, temperature=0))
        print(output.prompt_token_ids == tokenizer.encode(text) == list(text.encode()))
        print(tokenizer.apply_chat_template(messages) == list(b"user: hi\\n"), len(tokenizer), tokenizer.vocab_size)
        print(tokenizer.decode([104, 105]), tokenizer.decode(104), tokenizer.decode([257]), tokenizer.eos_token)
        print(repr(tokenizer.decode([257], skip_special_tokens=True)), tokenizer.eos_token_id, tokenizer.bos_token_id)
        """
    )
    assert ran.out.splitlines() == ["True", "True 260 260", "hi h <eos> <eos>", "'' 257 256"]


def test_an_engine_made_from_arguments_steps_to_the_end(play: Any) -> None:
    ran = play(
        """
        from vllm import EngineArgs, LLMEngine, SamplingParams
        args = EngineArgs(model="tiny", num_gpu_blocks_override=20, max_model_len=128, enforce_eager=True, swap_space=4)
        engine = LLMEngine.from_engine_args(args)
        engine.add_request("R", "hello", SamplingParams(temperature=0, max_tokens=3, ignore_eos=True), priority=1)
        while engine.has_unfinished_requests():
            for output in engine.step():
                print(output.request_id, len(output.outputs[0].token_ids), output.finished)
        """
    )
    assert ran.out.splitlines() == ["R 1 False", "R 2 False", "R 3 True"]
    assert "accepted, and changing nothing here: swap_space." in ran.err


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ('llm.generate("x", lora_request=object())', "LLM.generate with lora_request="),
        ('llm.generate("x", priority=[1])', "LLM.generate with priority=[1]"),
        ('llm.chat([], tools=[{"a": 1}])', "LLM.chat with tools="),
        ('llm.llm_engine.add_request("a", "x", None, trace_headers={"a": "b"})', "add_request with trace_headers="),
        ('llm.get_tokenizer()("text")', "tokenizer(text)"),
        ('llm.get_tokenizer().encode("text", truncation=True)', "tokenizer.encode with truncation=True"),
        ('llm.get_tokenizer().pad_token', "tokenizer.pad_token"),
        ('llm.generate("x")[0].outputs[0].routed_experts', "vllm.CompletionOutput.routed_experts"),
        ('llm.generate({"prompt": "x", "multi_modal_data": {}})', "a prompt has no field 'multi_modal_data'"),
    ],
)  # fmt: skip
def test_arguments_and_results_that_are_not_covered_are_named(play: Any, call: str, name: str) -> None:
    ran = play(f'from vllm import LLM\nllm = LLM("tiny", num_gpu_blocks_override=20)\n{call}')
    assert ran.status == 1
    assert name in ran.err
    assert "Traceback" not in ran.err


def test_arguments_that_ask_for_nothing_are_accepted(play: Any) -> None:
    ran = play(
        """
        from vllm import LLM, SamplingParams
        llm = LLM("tiny", num_gpu_blocks_override=20)
        one = SamplingParams(max_tokens=1)
        print(len(llm.generate(["a", "b"], [one, one], lora_request=None, priority=None)))
        """
    )
    assert (ran.status, ran.out) == (0, "2\n")
