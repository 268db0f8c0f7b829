"""Mistral, simulated: files, batch jobs and chat completions."""
