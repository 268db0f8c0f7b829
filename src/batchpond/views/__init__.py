"""Everything that reads the lake through SQL: the lens file, its views, and the sandbox for users' queries.

Whoever needs no view reads `refresh` alone: DuckDB takes longer to load than a pass with nothing new may take.
"""
