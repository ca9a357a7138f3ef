"""What is measured inside the model of a run."""
