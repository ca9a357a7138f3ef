"""From what a user writes to a resolved request."""
