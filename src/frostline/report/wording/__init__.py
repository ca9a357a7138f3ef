"""What curves and comparisons say, in sentences."""
