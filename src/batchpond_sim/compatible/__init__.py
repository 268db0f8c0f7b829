"""A local server of the OpenAI-compatible kind."""
