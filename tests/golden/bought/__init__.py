"""What commit cc06c86 asks for each of many studies."""
