"""Tests of eagle3/extraction."""
