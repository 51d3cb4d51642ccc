"""Training of the draft: rows from the store to checkpoints."""
