"""Trained models as folders, predictions from them, and freezing for people who keep their own training loop."""
