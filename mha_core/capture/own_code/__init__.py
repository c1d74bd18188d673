"""Follows attention that a model computes in its own code, where no function can be replaced."""
