"""What can run, what it is made of, and the contract between."""
