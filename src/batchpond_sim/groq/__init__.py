"""Groq, simulated: OpenAI's batches with lists that have no pages, and chat completions."""
