"""OpenAI: batches and live calls."""
