"""The models that a simulated Ollama has pulled, and what it tells about them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

NUM_CTX_DEFAULT = 4096
MODIFIED = "2026-10-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Model:
    """One pulled model; `thinking` is `none`, `switch` (on or off) or `levels` (always on, low to high)."""

    name: str
    family: str
    parameter_size: str
    size_bytes: int
    context_length: int
    thinking: str = "none"

    @property
    def digest(self) -> str:
        """The hexadecimal digest that names its weights."""
        return hashlib.sha256(self.name.encode("ascii")).hexdigest()

    def details(self) -> dict[str, Any]:
        """Return the `details` of a model as every listing has them."""
        return {
            "parent_model": "",
            "format": "gguf",
            "family": self.family,
            "families": [self.family],
            "parameter_size": self.parameter_size,
            "quantization_level": "Q4_K_M",
        }

    def listed(self) -> dict[str, Any]:
        """Return what `/api/tags` tells."""
        return {
            "name": self.name,
            "model": self.name,
            "modified_at": MODIFIED,
            "size": self.size_bytes,
            "digest": self.digest,
            "details": self.details(),
        }

    def shown(self) -> dict[str, Any]:
        """Return what `/api/show` tells."""
        can_think = () if self.thinking == "none" else ("thinking",)
        return {
            "license": "",
            "modelfile": f"FROM {self.name}",
            "parameters": "",
            "template": "{{ .Prompt }}",
            "details": self.details(),
            "model_info": {
                "general.architecture": self.family,
                f"{self.family}.context_length": self.context_length,
            },
            "capabilities": ["completion", *can_think],
            "modified_at": MODIFIED,
        }


MODELS = {
    model.name: model
    for model in (
        Model("llama3.2:latest", "llama", "3.2B", 2_019_393_189, 131_072),
        Model("gemma3:4b", "gemma3", "4.3B", 3_338_801_804, 131_072),
        Model("qwen3:8b", "qwen3", "8.2B", 5_225_388_164, 40_960, "switch"),
        Model("deepseek-r1:8b", "qwen3", "8.2B", 5_225_376_047, 131_072, "switch"),
        Model("gpt-oss:20b", "gptoss", "20.9B", 13_793_441_244, 131_072, "levels"),
    )
}


def found(name: str) -> Model | None:
    """Return a model by its name, in which `:latest` may be left out."""
    return MODELS.get(name if ":" in name else f"{name}:latest")
