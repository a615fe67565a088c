"""What a flow runs: supervised stage processes and what surrounds them."""
