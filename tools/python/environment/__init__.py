"""Builds one merged, patched site-packages from a hash lock."""
