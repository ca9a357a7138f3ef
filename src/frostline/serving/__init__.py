"""Many tasks on one trunk."""
