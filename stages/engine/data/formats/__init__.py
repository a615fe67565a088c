"""What the columns of rows mean: forms in which conversations, preferences and texts are published."""
