"""A study becomes requests in the lake."""
