"""Small lakes that commit cc06c86 made, in the middle of their studies."""
