"""What was computed or bought once, and may not change."""
