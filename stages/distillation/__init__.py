"""Learning from a teacher's distributions."""
