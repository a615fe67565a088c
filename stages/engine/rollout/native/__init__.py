"""Our own sampler: prefill, then compiled decode."""
