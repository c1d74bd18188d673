"""The scene, which decides what is on screen, and its link."""
