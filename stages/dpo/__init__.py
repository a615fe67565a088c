"""Learning from preferences: DPO and its family."""
