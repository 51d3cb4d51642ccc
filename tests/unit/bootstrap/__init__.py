"""Tests of the set-up on machines made of fakes: no network, no archive, no package index."""
