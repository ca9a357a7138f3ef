"""`frostline.freeze` in your own loop: frozen modules stay in evaluation mode, and their weights do not change."""

import torch

import frostline
from frostline.kinds import CLASSIFICATION
from frostline.model.load import load_model, load_tokenizer

tokenizer = load_tokenizer("all-MiniLM-L6-v2")
head = CLASSIFICATION.head(("bad", "good"))
model = load_model("all-MiniLM-L6-v2", head_seed=0, head=head, pad_token_id=tokenizer.pad_token_id)
plan = frostline.freeze(model, n_frozen=4)
print(plan)

batch = tokenizer(["a joy to watch", "a chore to watch"], padding=True, return_tensors="pt")
labels = torch.tensor([1, 0])
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
for step in range(5):
    model.train()  # frozen modules stay in evaluation mode
    loss = model(**batch, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3f}")
plan.verify()
print("frozen weights did not change")
