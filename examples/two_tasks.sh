#!/usr/bin/env bash
# Two small curves from the command line, and one report over both.
set -euo pipefail
small=(--max-train 320 --max-dev 200 --epochs 1 --lr 2e-4 --seeds 3 --frozen 4-6)
frostline curve all-MiniLM-L6-v2 rotten-tomatoes "${small[@]}" --out runs/example-short --max-length 16
frostline curve all-MiniLM-L6-v2 rotten-tomatoes "${small[@]}" --out runs/example-long --max-length 64
frostline report runs/example-short runs/example-long --format html,latex,csv --to runs/example-report
