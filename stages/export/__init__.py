"""The stage that writes a model for other programs."""
