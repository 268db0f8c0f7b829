"""One room at a time: no process, no simulator's clock, seconds."""
