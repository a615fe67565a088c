"""Model families: presets and weight-name tables, data only."""
