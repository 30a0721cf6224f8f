"""Observing a vLLM: in process, and from inside the engine core of a running server."""
