"""Whole studies against simulators in this process."""
