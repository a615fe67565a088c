"""Sampling and scoring under a model."""
