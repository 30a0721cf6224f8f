"""Streams completions and chats from a server, all at once, with OpenAI's own client.

    python client.py URL JOBS

JOBS is a JSON list of objects: ``name`` (sent as X-Request-Id), ``prompt``, ``tokens``; and if need be ``chat``
(true), ``n`` answers, ``salt``, and ``leave`` (the number of chunks after which the client hangs up). A line of JSON
is printed when a job has its first chunk and when it has ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from openai import AsyncOpenAI


async def main(url: str, jobs: list[dict[str, Any]]) -> None:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300) as client:
        await asyncio.gather(*(stream(client, **job) for job in jobs))


async def stream(client: AsyncOpenAI, name: str, leave: int = 0, **job: Any) -> None:
    chunks, text, id = 0, "", None
    answer = await start(client, name, **job)
    async for chunk in answer:
        chunks, id = chunks + 1, chunk.id
        text += "".join(getattr(choice, "text", None) or "" for choice in chunk.choices)
        if chunks == 2:  # the first of a chat holds no token
            say("begun", name=name)
        if chunks == leave:
            await answer.close()
            break
    say("ended", name=name, chunks=chunks, text=text, id=id)


async def start(
    client: AsyncOpenAI, name: str, prompt: str, tokens: int, chat: bool = False, n: int = 1, salt: str | None = None
) -> Any:
    options: dict[str, Any] = {
        "model": "m",
        "max_tokens": tokens,
        "n": n,
        "temperature": 0 if n == 1 else 1,
        "stream": True,
        "extra_headers": {"X-Request-Id": name},
        "extra_body": {"ignore_eos": True} | ({"cache_salt": salt} if salt else {}),
    }
    if chat:
        return await client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **options)
    return await client.completions.create(prompt=prompt, **options)


def say(what: str, **facts: Any) -> None:
    print(json.dumps({"what": what, **facts}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
