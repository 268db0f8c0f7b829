"""A local Gemini API."""
