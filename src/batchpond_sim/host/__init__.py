"""How requests reach the simulator: over loopback, or in-process."""
