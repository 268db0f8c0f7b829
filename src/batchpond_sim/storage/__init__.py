"""A local Cloud Storage."""
