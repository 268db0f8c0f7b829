"""A local OpenAI."""
