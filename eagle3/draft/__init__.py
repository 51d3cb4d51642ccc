"""The EAGLE-3 draft: its model, its vocabulary, and what it takes from the target."""
