"""The fault matrix: every fault at every stage, each with its outcome, within its deadline, and nothing left behind."""
