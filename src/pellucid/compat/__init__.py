"""Standing in for ``vllm`` while a script written for it runs."""

from pellucid.compat.script import run

__all__ = ["run"]
