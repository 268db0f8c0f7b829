"""Ollama: live calls."""
