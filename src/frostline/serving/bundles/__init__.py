"""Making bundles from runs and from any fine-tuned model, and merging them with their base again."""
