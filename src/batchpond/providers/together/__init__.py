"""Together AI: batches and live calls."""
