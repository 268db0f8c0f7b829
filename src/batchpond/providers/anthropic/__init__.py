"""Anthropic: Message Batches and live messages."""
