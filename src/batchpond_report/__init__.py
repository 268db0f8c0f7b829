"""The report: one page of a study's results, every figure with its n, its exclusions, its SQL and its data."""
