"""Metrics on their way to trackers, and figures made of measured ones."""
