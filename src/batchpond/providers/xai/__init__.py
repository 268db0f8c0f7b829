"""xAI: batches of an uploaded file whose results are pages, and live calls."""
