#!/usr/bin/env bash
# Makes sure the tools for a group of make targets are there: installs Debian packages when run as root with apt, else names them.
#
# deps.sh run|image|check
set -euo pipefail
case ${1:-run} in
  run) need=(gcc:gcc g++:g++ cmake:cmake ninja:ninja-build python3:python3 pip3:python3-pip npm:npm flock:util-linux git:git) ;;
  image) need=(gcc:gcc mmdebstrap:mmdebstrap systemd-nspawn:systemd-container xz:xz-utils cpio:cpio python3:python3) ;;
  check) need=(ip:iproute2 chromium:chromium dbus-daemon:dbus mmdebstrap:mmdebstrap systemd-nspawn:systemd-container node:nodejs) ;;
  *) echo "deps: unknown group $1" >&2; exit 2 ;;
esac

# Before minutes go into a build that could not be used.
if [ "${1:-}" = image ] && [ "$(id -u)" != 0 ]; then
  echo "deps: images and engine packs are built as root only (file owners in them must be right). Run this target as root, for example in a container." >&2
  exit 1
fi

# Rust first: it is the one thing not installed for you.
if ! command -v cargo >/dev/null; then
  echo "deps: Rust is missing. Install Rust 1.95 or newer (Debian's own is older), so that 'cargo --version' works, and run this again." >&2
  exit 1
fi
have=$(cargo --version | sed -n 's/^cargo \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
if ! awk -v v="$have" 'BEGIN { split(v, a, " "); exit !(a[1] > 1 || a[2] >= 95) }'; then
  echo "deps: $(cargo --version) is too old; Rust 1.95 or newer is needed" >&2
  exit 1
fi

missing=()
for pair in "${need[@]}"; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
# pip may be there as a module without the pip3 program.
if python3 -m pip --version >/dev/null 2>&1; then missing=("${missing[@]/python3-pip/}"); fi
list=$(echo "${missing[@]}" | xargs)
[ -z "$list" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "deps: installing $list (Debian packages; a minute or two)"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  # shellcheck disable=SC2086
  if ! apt-get install -y --no-install-recommends $list >"$log" 2>&1; then
    apt-get update >"$log" 2>&1 && apt-get install -y --no-install-recommends $list >>"$log" 2>&1 || { tail -20 "$log" >&2; rm -f "$log"; echo "deps: installing failed; see above" >&2; exit 1; }
  fi
  rm -f "$log"
else
  echo "deps: please install these packages and run again:  sudo apt-get install $list" >&2
  exit 1
fi
