"""One run: a spec goes in, a result comes out."""
