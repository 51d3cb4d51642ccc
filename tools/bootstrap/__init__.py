"""Sets up the pinned Bazel and the pinned Python on a bare Debian-like machine."""
