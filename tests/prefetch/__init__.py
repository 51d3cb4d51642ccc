"""Measures prefetching against a file system of known latency and bandwidth."""
