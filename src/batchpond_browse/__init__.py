"""A local page over a lake: what was asked, what each judge said and why, and people's labels, written back.

An application on the lake's public door: SQL through the read-only sandbox, errors, and labels; nothing else of
`batchpond` is known here. Loaded by `batchpond browse` alone, for it needs the extra of that name.
"""
