"""What the stages are made of."""
