"""Tests of eagle3/generation."""
