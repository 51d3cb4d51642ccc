"""Tests of eagle3/inspection."""
