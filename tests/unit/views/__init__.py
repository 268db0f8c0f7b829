"""Tests of `views`."""
