"""Studies of several stages, of which some wait for the answers of others."""
