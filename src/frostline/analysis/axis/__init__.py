"""Places on an axis: depths, or values of another axis, and what is said of them."""
