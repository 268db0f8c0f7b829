"""What the simulated APIs share."""
