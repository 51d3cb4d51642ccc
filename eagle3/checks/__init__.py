"""What can be known of a target, its data and the machine before the target is loaded."""
