"""Assembles OCI images from pinned packages, without a daemon, root or network."""
