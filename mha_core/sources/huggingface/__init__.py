"""Hugging Face models as sources: their files, how they are loaded, tried and traced."""
