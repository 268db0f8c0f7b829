"""Tests of `tasks`."""
