"""Tests of eagle3/draft."""
