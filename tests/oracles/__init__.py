"""Plain computations of what SQL and the package compute otherwise: tests compare the two."""
