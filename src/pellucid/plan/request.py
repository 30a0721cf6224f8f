"""A request as its caller hands it over: immutable, tokenised, not yet checked against a pool."""

from __future__ import annotations

from msgspec import Struct

from pellucid.plan.sampling import SamplingParams


class Request(Struct, frozen=True, kw_only=True):
    """One generation request.

    ``name`` is the caller's own and is looked up exactly; two live requests may not share one.
    ``priority`` counts only under ``scheduling_policy="priority"``: the smaller goes first.
    ``salt`` and ``adapter`` (name, version) are part of every block's identity: requests that
    differ in either never share a block.
    """

    name: str
    prompt: tuple[int, ...]
    sampling: SamplingParams = SamplingParams()
    priority: int = 0
    salt: str | None = None
    adapter: tuple[str, str] | None = None
