"""Inside the layers: attention heads and what trains or measures them."""
