"""Messages on a connection come whole or not at all, and what is no message is told from one."""

from __future__ import annotations

import random
import socket

import pytest

from pellucid.errors import StreamError
from pellucid.kv import KVManager
from pellucid.stream.frames import MAX_FRAME, Inbox, frame
from pellucid.stream.messages import End, Hello, Picture, Step, Watched
from pellucid.stream.reader import Reader

HELLO = Hello(Watched(engine="e", model="m", pid=1, started=0.0))
PICTURE = Picture(seq=7, time=1.0, snapshot=KVManager(9, 4).snapshot(), times={1: 0.5})


def test_messages_survive_any_cutting() -> None:
    messages = [HELLO, PICTURE, *(Step(seq=8 + i, time=2.0, acts=()) for i in range(20)), End("enough")]
    data = b"".join(map(frame, messages))
    draw = random.Random(1)
    here, there = socket.socketpair()
    with here, there:
        inbox, heard, sent = Inbox(there, "it"), [], 0
        while len(heard) < len(messages):
            cut = min(len(data), sent + draw.randint(0, 200))
            here.sendall(data[sent:cut])
            sent = cut
            while (message := inbox.next(0)) is not None:
                heard.append(message)
    assert heard == messages


def reader_of(data: bytes) -> Reader:
    here, there = socket.socketpair()
    here.sendall(data)
    here.close()
    return Reader(there, "the engine", 5.0)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "the engine is gone without a word"),
        (b"HTTP/1.1 200", f"announced a message of 1,213,486,160 bytes, over the limit of {MAX_FRAME:,}"),
        (b"\0\0\0\3abc", "said something that this Pellucid does not understand"),
        (frame(End("so soon")), "does not begin as an engine of Pellucid does"),
        (frame(Hello(HELLO.watched, protocol=99)), "speaks protocol 99, and this Pellucid protocol 1; use the same"),
    ],
)
def test_what_is_no_engine_is_not_listened_to(data: bytes, sentence: str) -> None:
    with pytest.raises(StreamError, match=sentence):
        reader_of(data)


def step(seq: int) -> Step:
    return Step(seq=seq, time=0.0, acts=())


@pytest.mark.parametrize(
    ("fine", "then", "sentence"),
    [
        ([], [step(1)], "told a step before it showed a picture"),
        ([PICTURE, step(8)], [step(10)], "went from step message 8 to 10; connect again"),
        ([PICTURE, step(8)], [step(8)], "went from step message 8 to 8"),
        ([PICTURE, step(8), PICTURE, step(8)], [], "is gone without a word"),
        ([PICTURE, End("enough")], [step(8)], "said goodbye: enough"),
    ],
)
def test_an_end_and_a_gap_are_noticed(
    fine: list[Picture | Step | End], then: list[Picture | Step | End], sentence: str
) -> None:
    with reader_of(b"".join(map(frame, [HELLO, *fine, *then]))) as reader:
        assert [reader.next(5.0) for _ in fine] == fine
        with pytest.raises(StreamError, match=sentence):
            reader.next(5.0)


def test_an_engine_that_does_not_answer_is_not_waited_for() -> None:
    here, there = socket.socketpair()
    with here, pytest.raises(StreamError, match=r"did not answer within 0\.05 s"):
        Reader(there, "the engine", 0.05)
