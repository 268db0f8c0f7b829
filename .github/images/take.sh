#!/usr/bin/env bash
# Take the pictures in README.md, in headless Chromium: positional bias in the demo's report, and a pair as `browse` has it.
# From the root of a checkout whose .venv has the extras `report` and `browse`: bash .github/images/take.sh [CHROMIUM]
set -euo pipefail
cd "$(dirname "$0")/../.."
browser=${1:-chromium}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
.venv/bin/batchpond --lake "$scratch/lake" demo --json > "$scratch/demo.json"
# One section stands for the page: a fragment in the address is not scrolled to before the picture is taken.
sed 's#</head>#<style>nav, section:not(\#position) { display: none }</style></head>#' \
  "$scratch/demo-report.html" > "$scratch/shown.html"
.venv/bin/batchpond --lake "$scratch/lake" browse --bundle "$scratch/pages" --limit 1 --quiet
take() {
  "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --hide-scrollbars --user-data-dir="$scratch/profile" \
    --window-size="$1" --screenshot="$PWD/.github/images/$2" "file://$3"
}
take 900,830 report.png "$scratch/shown.html"
take 1100,760 browse.png "$(echo "$scratch"/pages/case-*.html)"
