"""Tests; unit, contract, integration, lint."""
