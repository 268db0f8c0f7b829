"""A local Ollama."""
