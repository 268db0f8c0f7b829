"""Two studies, cells, versions or repeats over the same items: paired in SQL, and gated for CI."""
