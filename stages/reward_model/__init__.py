"""Training a reward model on preferences."""
