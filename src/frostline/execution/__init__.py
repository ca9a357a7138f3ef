"""Who does runs, and where."""
