"""Experiments on models: how an answer changes when attention is changed, and where a score comes from."""
