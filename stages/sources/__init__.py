"""External inputs by URI: content digests for identity, files for the child."""
