"""Measurements that carry the claims of the documentation; each folder has one command and a table."""
