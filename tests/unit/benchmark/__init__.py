"""Tests of eagle3/benchmark."""
