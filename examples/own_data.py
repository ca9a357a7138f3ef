"""Rows in a DataFrame → a curve, its answer and a page to look at."""

import pandas

import frostline

GOOD = ["a warm and funny film", "great fun from start to end", "a joy to watch", "it moves and delights"]
BAD = ["a dull and clumsy film", "boring from start to end", "a chore to watch", "it drags and annoys"]

rows = pandas.DataFrame(
    [{"text": f"{said}, take {take}", "label": label} for take in range(20) for label, texts in
     (("good", GOOD), ("bad", BAD)) for said in texts]
)  # fmt: skip
curve = frostline.curve(
    "all-MiniLM-L6-v2", rows, name="reviews", frozen="4-6", epochs=1, lr=2e-4, seeds=2, out="runs/example-own-data"
)
best = curve.operating_point(keep=0.9)
print(f"{best.trained_layers} of {curve.n_layers} layers keep 90% of the full model's {curve.metric}")
print("look at", curve.report("runs/example-own-data/report.html"))
