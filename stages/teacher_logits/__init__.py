"""A teacher's likeliest tokens at each target of a dataset."""
