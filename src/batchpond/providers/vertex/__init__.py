"""Google's Vertex AI: batch prediction jobs over Cloud Storage."""
