"""Tests of eagle3/training."""
