"""Hugging Face models as sources: their files, loading, the trial, and tracing."""
