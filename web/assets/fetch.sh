#!/bin/sh
# Brings the third-party browser files into target/web-assets, where web/build.rs embeds them from.
# In: package-lock.json (which versions) and third-party.sha256 (which bytes). A copy is kept in the cache by the lock file's hash,
# so a second run needs no network. Runs no script of any package.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-"$here/../../target/web-assets"}
lock=$(sha256sum "$here/package-lock.json" | cut -c1-16)
cache=${WARDEN_CACHE:-"${HOME:-/tmp}/.cache/lm-warden"}/web/$lock

whole() { (cd "$1" 2>/dev/null && sha256sum --check --strict --status "$here/third-party.sha256" 2>/dev/null); }

mkdir -p "$out"
if whole "$out"; then exit 0; fi

if ! whole "$cache"; then
    command -v npm >/dev/null || { echo "fetch.sh: npm is missing, it fetches htmx for the pages; install it (Debian: apt-get install npm)" >&2; exit 1; }
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT INT TERM
    cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$work/"
    (cd "$work" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2) ||
        { echo "fetch.sh: npm could not fetch the files named in web/assets/package-lock.json; check the network or the npm registry setting and try again" >&2; exit 1; }
    for file in htmx.min.js ext/hx-sse.min.js; do
        cp "$work/node_modules/htmx.org/dist/$file" "$work/part"
        mv "$work/part" "$cache/$(basename "$file")"
    done
    whole "$cache" || { echo "fetch.sh: the fetched files in $cache do not have the hashes in web/assets/third-party.sha256; nothing was taken over" >&2; exit 1; }
fi

for file in htmx.min.js hx-sse.min.js; do
    cp "$cache/$file" "$out/$file.part"
    mv "$out/$file.part" "$out/$file"
done
whole "$out" || { echo "fetch.sh: copying into $out went wrong" >&2; exit 1; }
