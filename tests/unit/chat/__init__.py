"""Tests of eagle3/chat."""
