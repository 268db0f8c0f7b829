"""What is asked of Mistral's models, and what they answer: chat completions, in lines that name no path.

A failed row's body is its error as JSON in a text (recorded), which all rows are read for.
"""

from __future__ import annotations

from typing import Final

from batchpond.providers import base
from batchpond.providers.compatible.dialect import Compatible
from batchpond.providers.shared.dialect import BARE_LINE, CHAT

_ABOUT: Final = base.descriptor("mistral", endpoints=(CHAT,))
DIALECT: Final = Compatible.of(_ABOUT, line_form=BARE_LINE, **base.table("mistral", "chat"))
