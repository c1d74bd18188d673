"""Where the pictures look, as one value, and how a link names it; below the rooms that draw."""
