"""The record of a forward pass: its tokens and layers, the trace of both, saving and verification."""
