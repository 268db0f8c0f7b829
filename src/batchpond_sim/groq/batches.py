"""Groq's account: OpenAI's files and batches, with Groq's answers."""

from __future__ import annotations

from batchpond_sim.groq.answers import answer
from batchpond_sim.openai.batches import OpenAIAccount
from batchpond_sim.world.world import World

PROVIDER = "groq"


class GroqAccount(OpenAIAccount):
    """All files and batches."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, answer)
