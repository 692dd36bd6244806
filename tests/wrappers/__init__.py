"""Wrappers: their command lines, and servers behind doubles that speak the same ones."""
