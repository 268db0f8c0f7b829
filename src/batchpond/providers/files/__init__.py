"""A folder in the place of a provider: requests go out as files, answers come back as files."""
