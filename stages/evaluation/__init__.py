"""Evaluation on verifiable tasks."""
