"""Hundreds of trials with random faults of the server and random kills of the tuner."""
