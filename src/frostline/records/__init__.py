"""Frozen records and their JSON: specs, plans, results, requests; and what identifies a result."""
