"""Lakes at an address: what is published stands in an object store, and each machine has a mirror of it."""
