"""Runs on a Ray cluster: the executor, its workers, and what travels between them. Imported only for `--on ray`."""
