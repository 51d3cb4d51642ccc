"""Remote execution: a service for development, and what an operator runs on a GPU host."""
