"""Google's Gemini Developer API: batches and live calls."""
