#!/usr/bin/env bash
# Installs a real engine into an environment of its own:
#   bash tests/engine/install.sh FOLDER [transformers|llamacpp|vllm]
set -euo pipefail
folder=$(realpath -m "${1:?the folder to install into}")
engine=${2:-transformers}
here=$(cd "$(dirname "$0")" && pwd)

case $engine in
  transformers) requirements=$here/requirements.txt ;;
  llamacpp | vllm) requirements=$here/requirements-$engine.txt ;;
  *)
    echo "no such engine: $engine (transformers, llamacpp or vllm)" >&2
    exit 2
    ;;
esac

python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --requirement "$requirements"
if [ "$engine" = vllm ]; then
  # The package index has only builds for graphics cards of these, which do not load beside torch's build for
  # CPUs; no text model needs them.
  "$folder/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
fi
echo "BATCHPOND_ENGINE_PYTHON=$folder/bin/python"
