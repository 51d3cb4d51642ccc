"""Tests that need no engine and no more than seconds."""
