"""What runs in the process of the flow itself: pure decisions over loaded results."""
