"""What reinforcement-learning stages share."""
