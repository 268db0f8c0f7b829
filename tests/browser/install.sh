#!/usr/bin/env bash
# Installs what tests/browser needs: Debian's Chromium where there is none (that asks for root), and the packages that
# drive it, into an environment that runs the other tests already:
#   bash tests/browser/install.sh [PYTHON]
set -euo pipefail
python=${1:-python3}
here=$(cd "$(dirname "$0")" && pwd)

if ! command -v chromium >/dev/null; then
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update --quiet
  "${as_root[@]}" apt-get install --quiet --yes --no-install-recommends chromium fonts-liberation
fi
"$python" -m pip install --quiet --requirement "$here/requirements.txt"
echo "BATCHPOND_BROWSER=$(command -v chromium)"
