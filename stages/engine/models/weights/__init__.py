"""Weights in and out of files."""
