"""Experiments on models: what becomes of an answer when attention is changed."""
