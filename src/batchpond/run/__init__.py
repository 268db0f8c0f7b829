"""Everything that exchanges requests for raw lines, and may spend money."""
