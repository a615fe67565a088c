"""Resumable state in the progress area."""
