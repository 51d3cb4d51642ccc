"""Tests of what runs and reports on GPU machines; no GPU is needed."""
