"""Optimizer, train step and loop."""
