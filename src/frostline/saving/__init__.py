"""A trained model as a folder, predictions from it, and freezing for people who keep their own loop."""
