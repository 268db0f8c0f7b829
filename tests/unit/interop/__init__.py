"""Tests of `interop`."""
