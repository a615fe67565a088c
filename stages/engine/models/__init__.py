"""One decoder for all families, its adapters and its weights."""
