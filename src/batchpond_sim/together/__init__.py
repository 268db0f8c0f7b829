"""A local Together."""
