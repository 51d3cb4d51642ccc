"""What a draft is worth: how much of it the target accepts, and how much faster that is."""
