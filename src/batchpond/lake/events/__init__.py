"""The events table: one fact per row about an attempt, a batch, an approval or a study.

`records` has the facts, each kind with the fields that it has, `columns` says which column of the table holds which
field, and `log` keeps them on disk.
"""
