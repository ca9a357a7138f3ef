"""A transformers model seen as embeddings, layers and head. Only this package knows library attribute names."""
