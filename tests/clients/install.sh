#!/usr/bin/env bash
# Installs the coding clients and the SDKs that the checks drive, from the npm and Python registries, into the cache outside the tree.
#
# In: package-lock.json and requirements.txt beside this script (every version pinned). Out: a folder of the cache named after their
# contents, with node_modules/ and venv/; its path is the last line printed. Running it again costs nothing. `install.sh sdk` leaves
# out the coding clients (1.1 GB on disk) and installs only the SDKs (45 MB).
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
WHAT=${1:-all}
CACHE=${WARDEN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lm-warden}
KEY=$(cat "$HERE/package-lock.json" "$HERE/requirements.txt" | sha256sum | cut -c1-12)
case $WHAT in
  all) OUT=$CACHE/clients/all-$KEY; OMIT=() ;;
  sdk) OUT=$CACHE/clients/sdk-$KEY; OMIT=(--omit=optional) ;;
  *) echo "usage: install.sh [all|sdk]" >&2; exit 2 ;;
esac

fail() { # what happened, what to do
  echo "clients: $1 $2 The log is $OUT/install.log." >&2
  exit 1
}
took() { echo "$((SECONDS - BEGAN)) s"; }

if [ -e "$OUT/complete" ]; then echo "$OUT"; exit 0; fi
if [ "$WHAT" = sdk ] && [ -e "$CACHE/clients/all-$KEY/complete" ]; then echo "$CACHE/clients/all-$KEY"; exit 0; fi
for program in node npm python3 flock; do
  command -v "$program" >/dev/null || { echo "clients: $program is missing; install the packages nodejs, npm, python3-venv and util-linux." >&2; exit 1; }
done
mkdir -p "$OUT"
exec 9>"$OUT/.lock"
flock -n 9 || { echo "clients: another installation is running; waiting for it"; flock 9; }
if [ -e "$OUT/complete" ]; then echo "$OUT"; exit 0; fi

[ "$WHAT" = sdk ] || [ "$(uname -m)" = x86_64 ] || fail "the coding clients are pinned for x86-64 and this machine is $(uname -m)." "Run the list on an x86-64 machine."
free=$(df --output=avail -k "$OUT" | tail -1)
need=$([ "$WHAT" = sdk ] && echo 300000 || echo 1700000)
[ "$free" -gt "$need" ] || fail "$((free / 1024)) MB are free in $CACHE and $((need / 1024)) MB are needed." "Make room, or set WARDEN_CACHE to another disk."

BEGAN=$SECONDS
if [ "$WHAT" = all ]; then
  echo "clients: Claude Code, Codex, OpenCode and two SDKs from the npm registry (300 MB to fetch, about half a minute)"
else
  echo "clients: two SDKs from the npm registry (10 MB to fetch, a few seconds)"
fi
cp "$HERE/package.json" "$HERE/package-lock.json" "$OUT/"
# No install scripts: the programs come inside platform packages, and what a script would fetch elsewhere is not wanted.
(cd "$OUT" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error "${OMIT[@]}") >"$OUT/install.log" 2>&1 </dev/null \
  || fail "npm could not install them ($(tail -1 "$OUT/install.log" | cut -c1-160))." "Check that the npm registry can be reached and run it again."
echo "clients: npm packages are there after $(took)"

BEGAN=$SECONDS
echo "clients: openai and anthropic for Python (about 20 s)"
rm -rf "$OUT/venv"
python3 -m venv "$OUT/venv" >>"$OUT/install.log" 2>&1 || fail "Python cannot make an environment." "Install the package python3-venv."
"$OUT/venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$HERE/requirements.txt" >>"$OUT/install.log" 2>&1 \
  || fail "pip could not install the SDKs ($(tail -1 "$OUT/install.log" | cut -c1-160))." "Check that the Python registry can be reached and run it again."
echo "clients: Python packages are there after $(took)"

if [ "$WHAT" = all ]; then
  echo "clients: starting each of them once"
  M=$OUT/node_modules
  SCRATCH=$(mktemp -d)
  trap 'rm -rf "$SCRATCH"' EXIT
  while read -r name program; do
    said=$(HOME=$SCRATCH timeout 60 "$program" --version 2>>"$OUT/install.log" </dev/null) \
      || fail "$name does not start on this machine." "Run $program --version to see why."
    echo "clients: $name: $said"
  done <<EOF
Claude-Code $M/@anthropic-ai/claude-code-linux-x64/claude
Codex $M/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex
OpenCode $M/opencode-linux-x64-baseline/bin/opencode
EOF
fi
: >"$OUT/complete"
echo "$OUT"
