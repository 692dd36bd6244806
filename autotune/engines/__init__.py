"""Inference servers: configuration to launch plan, read-back, and what can be known before a start."""
