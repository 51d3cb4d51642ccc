"""Tests of the CUDA stack on real devices."""
