"""Tests of eagle3/preparation and its command."""
