"""The scene, which decides what is on screen: where it looks, how it names tokens, and its link."""
