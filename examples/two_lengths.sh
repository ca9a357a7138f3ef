#!/usr/bin/env bash
# Does it cost much to cut texts at 16 tokens? Two small curves, and one report about both.
set -euo pipefail
small=(--max-train 640 --max-dev 320 --epochs 2 --lr 1e-4 --seeds 3 --frozen 4-6)
frostline curve all-MiniLM-L6-v2 rotten-tomatoes "${small[@]}" --out runs/example-short --max-length 16
frostline curve all-MiniLM-L6-v2 rotten-tomatoes "${small[@]}" --out runs/example-long --max-length 64
frostline report runs/example-short runs/example-long --format html,latex,csv --to runs/example-report
