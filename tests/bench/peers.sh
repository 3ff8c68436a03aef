#!/usr/bin/env bash
# Installs the gateways that ours is measured beside, from the Python registry by the versions of tests/bench/peers/*.txt. About 1 GB on disk.
#
# Out: one folder in the cache, keyed by those lists, with one Python environment per gateway. Prints the folder on the last line. A
# gateway that cannot be installed is an error: a comparison without it would say something else.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${WARDEN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lm-warden}
KEY=$(cat "$HERE"/peers/*.txt | sha256sum | cut -c1-12)
OUT=$CACHE/bench-peers/$KEY
mkdir -p "$OUT"

exec 9>"$CACHE/bench-peers/.lock"
flock -n 9 || { echo "peers: another installation is running; waiting for it"; flock 9; }
step=0
for list in "$HERE"/peers/*.txt; do
  name=$(basename -s .txt "$list")
  step=$((step + 1))
  [ -f "$OUT/$name/version" ] && continue
  version=$(sed -n "s/^$name==//p" "$list")
  echo "peers: installing $name $version ($step of 3, about a minute)"
  rm -rf "${OUT:?}/$name"
  python3 -m venv "$OUT/$name" || { echo "peers: no Python environment could be made (Debian package python3-venv)" >&2; exit 1; }
  nice -n 10 "$OUT/$name/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$list" >"$OUT/$name.log" 2>&1 || {
    echo "peers: $name $version could not be installed. See $OUT/$name.log" >&2
    exit 1
  }
  [ -x "$OUT/$name/bin/$name" ] || { echo "peers: $name $version brings no program $name" >&2; exit 1; }
  echo "$version" >"$OUT/$name/version"
done
echo "$OUT"
