"""One contract, one suite: every engine is put through it, against a simulated server and against real ones."""
