"""What is looked at: the scene, where it looks, how its tokens are named, and its link."""
