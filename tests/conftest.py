"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# Machines that run the suite are shared and slow at times: a deadline would test the machine.
settings.register_profile("batchpond", deadline=None)
settings.load_profile("batchpond")
