"""Raw lines become responses, and responses judgments."""

from typing import Final

READER_VERSION: Final = 1
"""Goes up when lines are read otherwise; responses are then made anew from the raw lines."""
