"""A KV connector that carries nothing: the second way into a vLLM, where its plugins are barred.

    --kv-transfer-config '{"kv_connector": "PellucidObserver", "kv_role": "kv_producer",
                           "kv_connector_module_path": "pellucid.attach.connector"}'

vLLM builds it inside its scheduler, and that is all it is for: from the first request on the scheduler is observed
as it is by the plugin. Every answer to vLLM is that of a connector that has nothing and wants nothing. What it
costs all the same stands in docs/attach.md.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from pellucid import log

NAME = "PellucidObserver"
BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"


class Silent:
    """What a connector is asked, in all versions of vLLM, and what one answers that carries nothing."""

    pellucid_observer = True  # by this a layout knows that it changes no table
    requires_kv_delivery = False  # or what was computed for a request that gives way would be thrown away

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        known = inspect.signature(super().__init__).parameters  # two before 0.12.0, then three
        super().__init__(*(vllm_config, role, kv_cache_config)[: len(known)])
        if role.name == "SCHEDULER":
            _observe()

    # -- asked in the scheduler --------------------------------------------------------------------

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        return

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        return importlib.import_module(BASE).KVConnectorMetadata()

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    # -- asked in the workers ----------------------------------------------------------------------

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        return

    def wait_for_layer_load(self, layer_name: str) -> None:
        return

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        return

    def wait_for_save(self) -> None:
        return


def _observe() -> None:
    """Never raises: vLLM would not start."""
    try:
        from pellucid.attach import doorway

        doorway.open_at_first_request()
    except Exception as error:
        log.say(f"this vLLM is not observed: {type(error).__name__}: {error}")


def __getattr__(name: str) -> Any:
    """The class is made when vLLM asks for it: what it stands on is vLLM's, and differs."""
    if name != NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = importlib.import_module(BASE)
    # Who can tell of all KV groups at once lets vLLM keep its manager for several.
    kinds = [getattr(base, kind) for kind in ("SupportsHMA", "KVConnectorBase_V1") if hasattr(base, kind)]
    made = globals()[NAME] = type(kinds[-1])(NAME, (Silent, *kinds), {"__module__": __name__})
    return made
