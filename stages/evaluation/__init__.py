"""Evaluation of a model on rows that it was not trained on."""
