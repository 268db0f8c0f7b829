"""Batches that the lake does not know, taken into it."""
