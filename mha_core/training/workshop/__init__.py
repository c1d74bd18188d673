"""Makes the shipped models, in a checkout: the wheel leaves this folder out."""
