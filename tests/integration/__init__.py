"""The real engine on the CPU."""
