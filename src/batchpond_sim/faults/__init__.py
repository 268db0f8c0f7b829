"""What can go wrong on purpose, and where it takes hold."""
