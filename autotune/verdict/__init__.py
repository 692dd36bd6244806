"""From measurements to a claim: objective, noise, confirmation, drift, importance. Pure functions of values.

Everything here compares on the log scale, because the noise of a server start is relative, and turns the
sign so that greater is better whatever the metric.
"""
