"""What is in a store: counts, statistics, text, differences."""
