"""How other people's models are read: what flows through their attention, and which matrices made it."""
