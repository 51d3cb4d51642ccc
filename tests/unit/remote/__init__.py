"""Tests of the remote service's parts, without starting it."""
