"""Attention that a model computes in its own code, not by a function that can be replaced: it is followed."""
