"""The table of the fault matrix."""
