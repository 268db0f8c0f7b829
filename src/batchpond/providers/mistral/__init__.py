"""Mistral: batch jobs over uploaded files, and live calls."""
