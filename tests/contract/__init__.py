"""Every provider, every fault, one contract."""
