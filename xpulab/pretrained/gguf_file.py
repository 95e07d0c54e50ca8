"""Read the Llama model of a release from its GGUF file: float32 weights in the layout of transformers, and its tokenizer.

Dequantization is the gguf package's. Source of the names and of the permuted rows: convert_hf_to_gguf.py of llama.cpp.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from xpulab.pretrained.tokenizer import write_from_tokens

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.weight")
_CONTROL = 3
"""The type of a special token in tokenizer.ggml.token_type."""


class GgufModel:
    """A GGUF file of architecture "llama" with a byte-level BPE tokenizer, whose digest was verified."""

    def __init__(self, path: Path) -> None:
        import gguf

        self._reader = gguf.GGUFReader(path)
        self._dequantize = gguf.dequantize

    def config(self) -> dict[str, Any]:
        """config.json as Hugging Face's transformers would write it."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "vocab_size": len(self._value("tokenizer.ggml.tokens")),
            "hidden_size": self._value("llama.embedding_length"),
            "intermediate_size": self._value("llama.feed_forward_length"),
            "num_hidden_layers": self._value("llama.block_count"),
            "num_attention_heads": self._value("llama.attention.head_count"),
            "num_key_value_heads": self._value("llama.attention.head_count_kv"),
            "max_position_embeddings": self._value("llama.context_length"),
            "rms_norm_eps": _shortest(self._value("llama.attention.layer_norm_rms_epsilon")),
            "rope_theta": _shortest(self._value("llama.rope.freq_base")),
            "tie_word_embeddings": not any(tensor.name == "output.weight" for tensor in self._reader.tensors),
            "bos_token_id": self._value("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self._value("tokenizer.ggml.eos_token_id"),
            "pad_token_id": self._value("tokenizer.ggml.padding_token_id"),
            "torch_dtype": "float32",
        }

    def weights(self) -> dict[str, np.ndarray]:
        """Every weight as float32, linear layers as [outputs, inputs], by the name that transformers gives it."""
        heads = {
            "attn_q": self._value("llama.attention.head_count"),
            "attn_k": self._value("llama.attention.head_count_kv"),
        }
        found = {}
        for tensor in self._reader.tensors:
            values = self._dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            block = _BLOCK.fullmatch(tensor.name)
            kind = block[2] if block else tensor.name.removesuffix(".weight")
            if kind in heads:
                values = _unpermuted(values, heads[kind])
            prefix = f"model.layers.{block[1]}." if block else ""
            found[f"{prefix}{_NAMES[kind]}.weight"] = np.ascontiguousarray(values)
        return found

    def write_tokenizer(self, folder: Path) -> None:
        """Write tokenizer.json and tokenizer_config.json."""
        tokens, kinds = self._value("tokenizer.ggml.tokens"), self._value("tokenizer.ggml.token_type")
        special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
        merges, template = self._value("tokenizer.ggml.merges"), self._value("tokenizer.chat_template")
        write_from_tokens(folder, tokens, merges, special, self.config(), template)

    def _value(self, name: str) -> Any:
        field: Any = self._reader.get_field(name)
        return field.contents()


def _unpermuted(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows in the order of transformers' rotary embedding (halves) from that of GGUF (pairs). values: [rows, columns]."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _shortest(value: float) -> float:
    """The decimal number that was stored in single precision: 9.999999747378752e-06 becomes 1e-05."""
    return float(f"{value:.7g}")
