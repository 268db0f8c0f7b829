"""Groq: batches of the files kind, and live calls."""
