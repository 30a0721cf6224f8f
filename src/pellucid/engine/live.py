"""A request whose caller still waits for it."""

from __future__ import annotations

from pellucid.engine.detokenizer import Detokenizer, TextDecoder
from pellucid.engine.output import CompletionOutput, RequestOutput
from pellucid.engine.prompt import Prompt
from pellucid.engine.sequence import Sequence


class LiveRequest:
    """A submission, the prompt it came with, and the text it has so far (none without a tokenizer).

    Text is made when somebody asks for it, of all tokens that came meanwhile: a step costs nothing for a text that
    nobody looks at before the end.
    """

    def __init__(self, sequence: Sequence, prompt: Prompt, tokenizer: TextDecoder | None) -> None:
        self.sequence = sequence
        self.handle = sequence.handle
        self._prompt, self._prompt_token_ids = prompt.text, list(prompt.tokens)
        skip = sequence.request.sampling.skip_special_tokens
        self.detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip) if tokenizer else None

    @property
    def finished(self) -> bool:
        return self.sequence.finish_reason is not None

    def output(self) -> RequestOutput:
        sequence = self.sequence
        output = sequence.output
        completion = CompletionOutput(
            index=0,
            text=self._text(output),
            token_ids=output,
            finish_reason=sequence.finish_reason,
            stop_reason=sequence.stop_reason,
        )
        return RequestOutput(
            request_id=sequence.name,
            prompt=self._prompt,
            prompt_token_ids=self._prompt_token_ids,
            outputs=[completion],
            finished=self.finished,
            num_cached_tokens=sequence.table.cached_tokens,
        )

    def _text(self, output: list[int]) -> str:
        if self.detokenizer is None:
            return ""
        complete = self.finished and self.sequence.finish_reason != "abort"
        self.detokenizer.catch_up(output, last=complete)
        return self.detokenizer.text
