"""Are the verdicts true? Simulated studies in virtual time: ``python -m benchmarks.verdict``."""
