"""What a run shows in Prefect as artifacts: pure functions from plans and records to their content."""
