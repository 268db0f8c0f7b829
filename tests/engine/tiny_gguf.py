"""The model of noise as one GGUF file, which is how llama.cpp loads models.

    python -m tests.engine.tiny_gguf FILE

Written by the format's own description (version 3: head, keys, tensors by name, then their bytes, aligned to 32).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tests.engine import tiny_model
from tests.engine.tiny_model import CONTEXT_TOKENS, END, HEAD_SIZE, HEADS, HIDDEN, INNER, LAYERS, ROLES, Array

_ALIGNMENT: Final = 32
_UINT32, _FLOAT32, _STRING, _ARRAY, _INT32 = 4, 6, 8, 9, 5
_F32: Final = 0
_NORMAL, _CONTROL = 1, 3
_NAMES: Final = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip

Value = int | float | str | Sequence[str] | Sequence[int]


def make(path: Path, seed: int = tiny_model.SEED) -> Path:
    """Write the model into a file and return its path."""
    words = tiny_model.vocabulary()
    tensors = dict(_tensors(tiny_model.weights_of(words, np.random.default_rng(seed))))
    keys = _keys(words)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    head += b"".join(_text(name) + _value(value) for name, value in keys.items())
    data = b""
    for name, array in tensors.items():
        shape = array.shape[::-1]  # the fastest dimension comes first
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, _F32, len(data))
        data += _aligned(array.tobytes())
    path.write_bytes(_aligned(head) + data)
    return path


def _keys(words: list[str]) -> Mapping[str, Value]:
    marks = {END, *ROLES}
    return {
        "general.architecture": "llama",
        "general.name": "noise",
        "llama.vocab_size": len(words),
        "llama.context_length": CONTEXT_TOKENS,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.block_count": LAYERS,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": HEAD_SIZE,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [_CONTROL if word in marks else _NORMAL for word in words],
        "tokenizer.ggml.merges": list[str](),
        "tokenizer.ggml.bos_token_id": words.index(END),
        "tokenizer.ggml.eos_token_id": words.index(END),
        "tokenizer.chat_template": tiny_model.CHAT_TEMPLATE,
    }


def _tensors(weights: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    for name, array in weights.items():
        stem = name.removesuffix(".weight")
        prefix = ""
        if stem.startswith("model.layers."):
            layer, stem = stem.removeprefix("model.layers.").split(".", 1)
            prefix = f"blk.{layer}."
        is_rotated = stem in ("self_attn.q_proj", "self_attn.k_proj")
        yield f"{prefix}{_NAMES[stem]}.weight", _interleaved(array) if is_rotated else array


def _interleaved(array: Array) -> Array:
    """Return rows so that the two that are rotated together are neighbours; elsewhere they are half a head apart."""
    halves = array.reshape(HEADS, 2, HEAD_SIZE // 2, HIDDEN)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(HIDDEN, HIDDEN))


def _value(value: Value) -> bytes:
    match value:
        case int():
            return struct.pack("<II", _UINT32, value)
        case float():
            return struct.pack("<If", _FLOAT32, value)
        case str():
            return struct.pack("<I", _STRING) + _text(value)
    items = [struct.pack("<i", item) if isinstance(item, int) else _text(item) for item in value]
    kind = _INT32 if value and isinstance(value[0], int) else _STRING
    return struct.pack("<IIQ", _ARRAY, kind, len(items)) + b"".join(items)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _aligned(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
