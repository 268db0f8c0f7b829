"""What the readers and prompts of several tasks share."""
