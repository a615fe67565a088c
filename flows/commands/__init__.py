"""The commands of `temper`, a file for each: `add_arguments` says what it takes, `run` does it."""
