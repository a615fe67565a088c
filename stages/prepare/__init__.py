"""Prepare data: rows with disjoint splits."""
