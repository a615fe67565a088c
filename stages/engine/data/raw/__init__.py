"""Rows as they stand in files of several kinds, before anything is known about what they mean."""
