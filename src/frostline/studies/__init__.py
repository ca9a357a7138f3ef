"""Questions that are answered by runs: which runs, in which order, and what they add up to."""
