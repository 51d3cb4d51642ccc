"""Conversations in the target's own words."""
