"""Lessons: screens that each ask a question about one scene, whose answer is computed and can be run.

A `Lesson` is read from a TOML file. Each screen's question, posed about its scene, is an `Item`: it has a key
from the scene's trace, scores an answer against it, and runs the answer in the model.
"""
