"""What simulated models say."""
