#!/usr/bin/env bash
# Take the picture in README.md: positional bias in the demo's report, in headless Chromium.
# From the root of a checkout whose .venv has the extra `report`: bash .github/images/take.sh [CHROMIUM]
set -euo pipefail
cd "$(dirname "$0")/../.."
browser=${1:-chromium}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
.venv/bin/batchpond --lake "$scratch/lake" demo --json > "$scratch/demo.json"
# One section stands for the page: a fragment in the address is not scrolled to before the picture is taken.
sed 's#</head>#<style>nav, section:not(\#position) { display: none }</style></head>#' \
  "$scratch/demo-report.html" > "$scratch/shown.html"
"$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
  --disable-component-update --disable-sync --hide-scrollbars --user-data-dir="$scratch/profile" \
  --window-size=900,830 --screenshot="$PWD/.github/images/report.png" "file://$scratch/shown.html"
