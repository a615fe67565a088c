"""What stands between runs: a server and a worker that last, deployments with their schedules, limits."""
