"""xAI, simulated: batches without a status, results in pages, and chat completions."""
