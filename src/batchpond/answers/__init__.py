"""Raw lines become responses, and responses judgments."""
