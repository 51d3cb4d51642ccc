"""Pinned third-party software: locks, patches, models."""
