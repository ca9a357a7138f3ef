"""Which runs a study wants: axes, how learning rates are chosen, races, and the search over depth."""
