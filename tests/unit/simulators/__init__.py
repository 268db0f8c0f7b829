"""Tests of `simulators`."""
