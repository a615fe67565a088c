"""The `temper` command and the flow that it runs."""
