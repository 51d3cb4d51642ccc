"""The remote service itself, started for real."""
