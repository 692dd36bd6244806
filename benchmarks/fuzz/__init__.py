"""The long round of the fuzzing in tests/fuzz."""
