"""`study.toml` and the lake's settings become checked records."""
