"""Reads a pipeline file, resolves it, computes identity keys and plans what must run."""
