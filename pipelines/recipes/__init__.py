"""Rows that shipped pipelines make for themselves: `recipes/preferences.py:create_dataset` as a source of `prepare`."""
