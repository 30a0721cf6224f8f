"""Attention over block tables: the pool that holds K and V, the layout of a step, and the backends that read both."""

from pellucid.attention.base import AttentionBackend
from pellucid.attention.compiled import CompiledAttention
from pellucid.attention.layout import StepLayout
from pellucid.attention.reference import ReferenceAttention
from pellucid.attention.registry import attention_backend
from pellucid.attention.storage import KVStorage

__all__ = [
    "AttentionBackend",
    "CompiledAttention",
    "KVStorage",
    "ReferenceAttention",
    "StepLayout",
    "attention_backend",
]
