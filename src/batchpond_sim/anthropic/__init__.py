"""A local Anthropic."""
