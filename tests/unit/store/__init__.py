"""Tests of eagle3/store."""
