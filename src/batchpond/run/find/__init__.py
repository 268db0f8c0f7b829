"""Batches looked for at the providers: those open, those in doubt, those made elsewhere."""
