"""Local simulators of the providers: the same wire from the other side, with a ledger and faults."""
