"""The running target: the only code that touches private names of vLLM or speculators."""
