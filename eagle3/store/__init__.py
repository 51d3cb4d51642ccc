"""Samples and their hidden states on disk: written whole, or not at all."""
