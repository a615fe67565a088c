"""Stored objects with conditional writes, and the protocol built on them."""
