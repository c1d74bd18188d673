"""Reading other people's models: what flows through an attention of theirs, and what made it."""
