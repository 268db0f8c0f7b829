"""A simulated world: what it holds, what it has counted, and how fast it may be asked."""
