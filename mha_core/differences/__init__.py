"""The first difference of two runs of attention, and its reason."""
