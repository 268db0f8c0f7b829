"""What is asked of Groq's models, and what they answer: chat completions, in OpenAI's lines and rows."""

from __future__ import annotations

from typing import Final

from batchpond.providers import base
from batchpond.providers.compatible.dialect import Compatible
from batchpond.providers.shared.dialect import CHAT

DIALECT: Final = Compatible.of(base.descriptor("groq", endpoints=(CHAT,)), **base.table("groq", "chat"))
