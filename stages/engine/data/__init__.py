"""Rows, tokens and batches."""
