"""Writing a transformers model as a GGUF file, as llama.cpp's converter would."""

from __future__ import annotations

import gguf
from gguf import GGMLQuantizationType as Type

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def llama_cpp_name(name):
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name.replace("model.layers.", "blk.")


def llama_cpp_rows(weight, heads):
    """The order in which llama.cpp's converter stores q and k of the llama architecture."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write(path, oracle, arch, *, metadata=None, extra=None, kind=Type.F32):
    config = oracle.model.config
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    for key, value in (metadata or {}).items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads} if arch == "llama" else {}
    tied = config.tie_word_embeddings
    weights = {
        name: w.numpy() for name, w in oracle.model.state_dict().items() if not (tied and name == "lm_head.weight")
    }
    for name, weight in weights.items():
        part = name.split(".")[-2]
        stored = llama_cpp_rows(weight, heads[part]) if part in heads else weight
        as_kind = kind if weight.ndim == 2 else Type.F32
        writer.add_tensor(llama_cpp_name(name), gguf.quants.quantize(stored, as_kind), raw_dtype=as_kind)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
