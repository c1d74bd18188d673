"""What is kept of a pass: tokens, layers, the trace of both, and how it is saved and verified."""
