"""What other tools wrote, read into the lake; what they read, written from it."""

from typing import Final

READERS: Final = "batchpond.importers"
"""The group of entry points, of this distribution and any other, that read the files of other tools."""
