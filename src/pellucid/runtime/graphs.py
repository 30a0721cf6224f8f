"""CUDA graphs of whole steps, one a bucket."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pellucid.runtime.buckets import Bucket

Step = Callable[[Bucket], None]


class Graphs:
    """Captures what a ``step`` launches for a bucket, and replays it.

    Whoever owns the graphs hands over its step each time: were it kept here, the two would hold each other, and the
    memory of both would wait for the garbage collector.

    A captured step reads all that varies from the device, at addresses that never change, and leaves nothing behind in
    the memory it allocates: so all graphs share one pool of it, and may be replayed in any order, one at a time.
    """

    def __init__(self, device: torch.device) -> None:
        self._graphs: dict[Bucket, torch.cuda.CUDAGraph] = {}
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, step: Step, bucket: Bucket) -> None:
        """Replay the graph of ``bucket``; the first time, run the step as it is and capture it for the next."""
        graph = self._graphs.get(bucket)
        if graph is None:
            self.capture(step, bucket)
        else:
            graph.replay()

    def capture(self, step: Step, bucket: Bucket) -> None:
        """Run the step once, so that its kernels are compiled and its workspaces there, then capture it.

        Both happen on a stream of their own, behind the current one and before what that is given next.
        """
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            step(bucket)
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                step(bucket)
            finally:
                graph.capture_end()
        current.wait_stream(self._stream)
        self._graphs[bucket] = graph
