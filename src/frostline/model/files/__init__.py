"""Files of pretrained models, looked at without torch: a mistake is answered before it is imported."""
