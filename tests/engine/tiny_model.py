"""A judge of noise: a chat model of random weights, made on the spot for real engines to load.

    python -m tests.engine.tiny_model FOLDER

The folder is what Hugging Face calls a model: `transformers serve` and vLLM load it as they load any
other. It is a Llama of two layers whose tokens are single bytes, 0.5 MB in all, the same bytes for the
same seed on every machine. Its answers mean nothing, but they are made as a real model's are: by sampling or by
taking the likeliest token, to an end token or to the limit that the request sets.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from batchpond.tasks.pairwise import PairwiseRule

END: Final = "<|end|>"
ROLES: Final = tuple(f"<|{role}|>" for role in ("system", "user", "assistant"))
CONTEXT_TOKENS: Final = 8192
SEED: Final = 3  # of the first few, the one whose answers are the most varied
HIDDEN, INNER, LAYERS, HEADS = 64, 128, 2, 2
HEAD_SIZE: Final = HIDDEN // HEADS  # 32 is the smallest that vLLM's attention takes on a CPU
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
# How loud the random row of a token is in the last layer: letters are said more often than other bytes, so that
# answers are text, and the end often enough for many answers to reach it.
_LOUDNESS_OTHER, _LOUDNESS_LETTER, _LOUDNESS_END = 0.02, 0.4, 0.6
_SPACE: Final = "\u0120"  # the letter that stands for a space in a byte-level vocabulary

Array = npt.NDArray[np.float32]


def make(folder: Path, seed: int = SEED) -> Path:
    """Write the model into a folder, which may exist, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = vocabulary()
    end_id = words.index(END)
    _write_json(folder / "config.json", _config(len(words), end_id))
    _write_json(folder / "generation_config.json", {"eos_token_id": end_id, "pad_token_id": end_id})
    _write_json(folder / "tokenizer.json", _tokenizer(words))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config())
    _write_safetensors(folder / "model.safetensors", weights_of(words, np.random.default_rng(seed)))
    return folder


# --- words ----------------------------------------------------------------------------------------


def vocabulary() -> list[str]:
    """Return the tokens by id: every byte, the marks of a chat, and the two answers of a pairwise judge.

    Nothing joins bytes, so a prompt never holds an answer's token; the model can still say it.
    """
    rule = PairwiseRule()
    return [*_byte_letters(), END, *ROLES, *rule.answers]


def _byte_letters() -> list[str]:
    """Return the letter that stands for each byte in a byte-level vocabulary: GPT-2's mapping."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in shown else next(others)) for byte in range(0x100)]


def _tokenizer(words: list[str]) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    marks = (END, *ROLES)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": words.index(mark), "content": mark} | flags for mark in marks],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": [],
        },
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT_TOKENS,
        "eos_token": END,
        "pad_token": END,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


# --- weights --------------------------------------------------------------------------------------


def _config(n_words: int, end_id: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": n_words,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT_TOKENS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": end_id,
        "pad_token_id": end_id,
        "torch_dtype": "float32",
    }


def weights_of(words: list[str], random: np.random.Generator) -> dict[str, Array]:
    def normal(*shape: int, scale: float = 0.3) -> Array:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    weights = {"model.embed_tokens.weight": normal(len(words), HIDDEN, scale=1.0)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        weights |= {f"{prefix}.self_attn.{name}_proj.weight": normal(HIDDEN, HIDDEN) for name in "qkvo"}
        weights |= {f"{prefix}.mlp.{name}_proj.weight": normal(INNER, HIDDEN) for name in ("gate", "up")}
        weights[f"{prefix}.mlp.down_proj.weight"] = normal(HIDDEN, INNER)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}.{name}.weight"] = np.ones(HIDDEN, np.float32)
    weights["model.norm.weight"] = np.ones(HIDDEN, np.float32)
    loudness = np.array([_loudness(word) for word in words], np.float32)
    weights["lm_head.weight"] = normal(len(words), HIDDEN, scale=1.0) * loudness[:, None]
    return weights


def _loudness(word: str) -> float:
    if word in ROLES:
        return 0.0
    if word == END:
        return _LOUDNESS_END
    is_text = len(word) > 1 or (word.isascii() and word.isalnum()) or word == _SPACE
    return _LOUDNESS_LETTER if is_text else _LOUDNESS_OTHER


# --- files ----------------------------------------------------------------------------------------


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def _write_safetensors(path: Path, weights: dict[str, Array]) -> None:
    """Write tensors as safetensors: the length of the head (8 bytes, little endian), the head, the bytes."""
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in weights.items():
        begin, end = end, end + array.nbytes
        head[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in weights.values()))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
