"""Tests of eagle3/evaluation."""
