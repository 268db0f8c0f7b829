"""A local Vertex AI."""
