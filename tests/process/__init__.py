"""The program as people start it: commands, kills, signals."""
