"""Whole studies against real engines."""
