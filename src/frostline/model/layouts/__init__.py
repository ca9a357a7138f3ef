"""Batches without padding: which way a model allows, found by comparing it with itself padded."""
