"""What the project's speed is measured with."""
