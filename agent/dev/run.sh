#!/usr/bin/env bash
# `make run`: the agent, a real CPU engine and a small real model on this machine. Ctrl-C stops everything started here.
set -euo pipefail
cd "$(dirname "$0")/../.."
HERE=agent/dev
CACHE=${WARDEN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lm-warden}
RUN=$(realpath -m "${WARDEN_RUN_DIR:-target/run}")
PORT=${WARDEN_PORT:-8080}
BUILT=${CARGO_TARGET_DIR:-target}/debug
BIN=$BUILT/warden-agent

mkdir -p "$RUN/data/models" "$RUN/state"
model=$($HERE/model.sh)
if [ ! -f "$RUN/data/models/$(basename "$model")" ]; then
  ln "$model" "$RUN/data/models/" 2>/dev/null || cp "$model" "$RUN/data/models/"
fi

# Unix socket paths hold 107 bytes: sockets of a deep checkout go to a short folder of their own.
runtime=$RUN/runtime
if [ ${#runtime} -gt 60 ]; then runtime=${TMPDIR:-/tmp}/lm-warden-$(id -u)-$(printf %s "$RUN" | sha256sum | cut -c1-8); fi
mkdir -p "$runtime" && chmod 700 "$runtime"
cat >"$RUN/agent.toml" <<TOML
profile = "dev"
listen = "127.0.0.1:$PORT"
state_dir = "$RUN/state"
data_dir = "$RUN/data"
engines_dir = "$CACHE/engines"
runtime_dir = "$runtime"
stop_engines_on_exit = true
drain_seconds = 5
TOML

# Simulated GPUs: a library with its scenario beside it, in the place of the installed one.
if [ -n "${SCENARIO:-}" ]; then
  scenario=tests/fakes/nvml/scenarios/$SCENARIO.toml
  if [ ! -f "$scenario" ]; then
    echo "run: there is no scenario $SCENARIO; there are:" $(basename -s .toml tests/fakes/nvml/scenarios/*.toml) >&2
    exit 2
  fi
  mkdir -p "$RUN/nvml"
  cp "$BUILT/libwarden_fake_nvml.so" "$RUN/nvml/libnvidia-ml.so.1"
  cp "$scenario" "$RUN/nvml/scenario.toml"
  echo "gpu_library = \"$RUN/nvml/libnvidia-ml.so.1\"" >>"$RUN/agent.toml"
fi

engine_pid=
agent_pid=
watch_pid=
finish() {
  trap - INT TERM EXIT
  [ -n "$watch_pid" ] && kill "$watch_pid" 2>/dev/null || true
  [ -n "$engine_pid" ] && kill -TERM -- "-$engine_pid" 2>/dev/null || true
  if [ -n "$agent_pid" ]; then
    kill -TERM "$agent_pid" 2>/dev/null || true
    wait "$agent_pid" 2>/dev/null || true
  fi
  echo "run: stopped"
}
trap finish EXIT
# Ctrl-C is how this is meant to end.
trap 'exit 0' INT
trap 'exit 143' TERM

# The lines of a long build push the console's address away: it is told once more after it.
engine() {
  local begun=$SECONDS
  image/packs/llama.cpp/build.sh </dev/null || return
  if ((SECONDS - begun > 5)); then WARDEN_RUN_DIR=$RUN python3 $HERE/where.py; fi
}
# Its own process group (-m), so that stopping it reaches the compilers too. When the engine is cached this ends at once.
set -m
engine &
engine_pid=$!
"$BIN" --config "$RUN/agent.toml" </dev/null &
agent_pid=$!
set +m
# On a terminal this is a group of its own, which nobody would end together with make.
(while kill -0 "$PPID"; do sleep 2; done; kill -TERM $$) >/dev/null 2>&1 &
watch_pid=$!
echo "run: starting (Ctrl-C stops agent and engines); state is kept in $RUN"
status=0
wait "$agent_pid" || status=$?
agent_pid=
exit "$status"
