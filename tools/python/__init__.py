"""The hermetic interpreter and the environments on it."""
