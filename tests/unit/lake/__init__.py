"""Tests of `lake`."""
