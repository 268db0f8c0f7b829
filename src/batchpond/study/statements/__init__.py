"""Policy statements from the files that hold them."""
