"""Studies of the inside of the layers: attention heads, what fine-tuning changes, depths predicted before training."""
