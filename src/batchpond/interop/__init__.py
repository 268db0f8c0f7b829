"""What other tools wrote, read into the lake; what they read, written from it."""
