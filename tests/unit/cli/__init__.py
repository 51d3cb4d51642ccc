"""Tests of the commands as their users meet them."""
