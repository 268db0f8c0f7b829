"""The pages that one browses a lake on."""
