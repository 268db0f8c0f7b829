"""Any OpenAI-compatible chat endpoint: live calls."""
