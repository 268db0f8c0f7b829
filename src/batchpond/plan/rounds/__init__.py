"""Requests that could be built only from earlier answers."""
