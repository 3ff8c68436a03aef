#!/usr/bin/env bash
# Prints the crate graph of the workspace (normal dependencies) and compares it with docs/crate-graph.txt. `graph.sh --write` updates it.
set -euo pipefail
cd "$(dirname "$0")/../.."
graph() {
  cargo metadata --format-version 1 --no-deps --offline | python3 -c '
import json, sys
packages = json.load(sys.stdin)["packages"]
ours = {p["name"] for p in packages}
for p in sorted(packages, key=lambda p: p["name"]):
    needs = sorted({d["name"] for d in p["dependencies"] if d["name"] in ours and d["kind"] is None})
    print(p["name"] + (" -> " + " ".join(needs) if needs else ""))'
}
if [ "${1:-}" = --write ]; then graph >docs/crate-graph.txt; exit; fi
if ! diff -u docs/crate-graph.txt <(graph); then
  echo "graph: the crate graph changed. If the new arrow is wanted: tests/lint/graph.sh --write, and say why in the commit." >&2
  exit 1
fi
echo "graph: as committed"
