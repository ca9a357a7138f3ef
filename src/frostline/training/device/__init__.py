"""What computes a run: the device, and how its processor is used best."""
