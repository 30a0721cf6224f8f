"""Observing a vLLM: in process, and from inside the engine core of a running server."""

from pellucid.attach.kv import ObservedKV, observe

__all__ = ["ObservedKV", "observe"]
