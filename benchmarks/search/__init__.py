"""A benchmark of searches in virtual time."""
