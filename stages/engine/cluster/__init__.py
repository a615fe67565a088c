"""Processes and devices that work on one stage together."""
