"""Tests of eagle3/checks."""
