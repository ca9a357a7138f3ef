"""Tasks over HTTP: what `frostline serve` runs."""
