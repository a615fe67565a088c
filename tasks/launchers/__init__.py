"""Where a stage's process runs."""
