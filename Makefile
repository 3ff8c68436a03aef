# LM Warden Appliance. `make help` lists the targets. Every target says what it is doing; times are for two quiet cores.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
CARGO ?= cargo
FLAVOUR ?= production
PROGRAMS = $(or $(CARGO_TARGET_DIR),target)/debug
# Simulated GPUs for `make run`: a name in tests/fakes/nvml/scenarios. Without it the installed NVIDIA library is looked for.
export SCENARIO
export WARDEN_CACHE ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/lm-warden

.PHONY: help run where bins programs demo test lint unit deny graph engine model assets packs image stick vm vm-install check-slice check-box check-updates check-serving check-dialects bench-gateway vllm check-vllm clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: ## agent + real CPU engine + small model on this machine (cold: console in about 5 min, answer in about 13; warm: under 5 s); SCENARIO=four-alike simulates GPUs
	@agent/dev/deps.sh run
	@$(MAKE) --no-print-directory assets
	@[ -x $(PROGRAMS)/warden-agent ] || echo "run: building the agent (about 3 minutes, this time only)"
	@$(CARGO) build -p warden-agent -p warden-gpu $(if $(SCENARIO),-p warden-fake-nvml)
# On a terminal job control (-m) gives it to run.sh: Ctrl-C is that script's own affair, and make has nothing to complain about.
	@if [ -t 0 ]; then set -m; agent/dev/run.sh; else exec agent/dev/run.sh; fi

where: ## console address and claim code of a running `make run`, once more
	@python3 agent/dev/where.py

# Always the whole workspace, so that one set of dependency features is compiled once for every target here.
bins: assets
	@[ -x $(PROGRAMS)/warden-image ] || echo "build: the programs (about 3 minutes, this time only)"
	@$(CARGO) build --workspace --bins

# In the image's own form. A check finds them built: what it measures is the appliance, not the compiler.
programs: bins
	@[ -x $(or $(CARGO_TARGET_DIR),target)/release/warden-agent ] || echo "build: the programs of the image (5 to 7 minutes, this time only)"
	@target/debug/warden-image programs

demo: ## the setup wizard's steps by API against a running `make run`, then a chat answer
	@python3 agent/dev/demo.py

assets: ## page assets from the npm registry, by lock file and hash, into target/web-assets
	@web/assets/fetch.sh

engine: ## the genuine llama-server of llama.cpp (8 to 10 minutes on two cores, cached outside the tree)
	@agent/dev/deps.sh run
	@image/packs/llama.cpp/build.sh

model: ## the small chat model (98 MB, cached outside the tree)
	@agent/dev/model.sh

test: ## everything of the README's promise: lint, unit and integration tests with the real engine
	@agent/dev/deps.sh run
	@agent/dev/deps.sh check
	@$(MAKE) --no-print-directory assets engine lint unit graph

lint: assets ## formatting, clippy, file sizes
	@echo "lint: formatting"; $(CARGO) fmt --all --check
	@echo "lint: clippy (about 2 minutes the first time)"; $(CARGO) clippy --quiet --workspace --all-targets -- -D warnings
	@tests/lint/house.sh

unit: assets ## unit and integration tests (real llama.cpp with a tiny generated model)
	@echo "unit: building and running the tests (about 4 minutes the first time)"
	@if command -v cargo-nextest >/dev/null; then $(CARGO) nextest run --workspace --no-fail-fast; else $(CARGO) test --workspace --no-fail-fast; fi

deny: ## licences, sources and duplicate crates
	@command -v cargo-deny >/dev/null || { echo "deny: installing cargo-deny (several minutes)"; $(CARGO) install --quiet --locked cargo-deny@0.20.2; }
	@$(CARGO) deny check bans licenses sources

graph: ## the crate graph must be the committed one; a new arrow is a decision
	@tests/lint/graph.sh

image: ## the UEFI disk image (FLAVOUR=production|test; cold about 6 min with the release build, warm about 20 s)
	@agent/dev/deps.sh image
	@$(MAKE) --no-print-directory engine bins
	@target/debug/warden-image image --flavour $(FLAVOUR) --with-pack

stick: ## the installer stick for real machines, with the engine; DEVICE=/dev/sdx writes it after showing it and asking
	@agent/dev/deps.sh image
	@$(MAKE) --no-print-directory engine bins
	@target/debug/warden-image stick --profile hardware $(if $(DEVICE),--device $(DEVICE))

vm-install: ## tries the installer in QEMU: the stick, two blank disks, one with an older installation; this terminal is the serial line
	@agent/dev/deps.sh image
	@$(MAKE) --no-print-directory engine bins
	@target/debug/warden-image image --with-pack --with-stick
	@target/debug/warden-image vm-install

packs: ## the signed llama.cpp engine pack
	@agent/dev/deps.sh image
	@$(MAKE) --no-print-directory engine bins
	@target/debug/warden-image packs

vm: ## builds the image and boots it in QEMU; console on https://127.0.0.1:18443/ui/
	@$(MAKE) --no-print-directory image
	@target/debug/warden-image vm --flavour $(FLAVOUR)

check-slice: ## the acceptance list tests/accept/slice.toml; SABOTAGE=id runs one deliberate break, which must fail
	@agent/dev/deps.sh check
	@agent/dev/deps.sh image
	@$(MAKE) --no-print-directory engine bins
	@target/debug/warden-check slice $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(if $(ONLY),--only $(ONLY)) $(CHECK_FLAGS)

check-box: ## the acceptance list tests/accept/box.toml; SABOTAGE, ONLY and CHECK_FLAGS as above
	@agent/dev/deps.sh check
	@agent/dev/deps.sh image
	@$(MAKE) --no-print-directory engine programs
	@target/debug/warden-check box $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(if $(ONLY),--only $(ONLY)) $(CHECK_FLAGS)

check-updates: ## the acceptance list tests/accept/updates.toml; SABOTAGE, ONLY and CHECK_FLAGS as above
	@agent/dev/deps.sh check
	@agent/dev/deps.sh image
	@$(MAKE) --no-print-directory engine programs
	@target/debug/warden-check updates $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(if $(ONLY),--only $(ONLY)) $(CHECK_FLAGS)

check-serving: ## the acceptance list tests/accept/serving.toml; SABOTAGE, ONLY and CHECK_FLAGS as above
	@agent/dev/deps.sh check
	@$(MAKE) --no-print-directory engine bins
	@target/debug/warden-check serving $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(if $(ONLY),--only $(ONLY)) $(CHECK_FLAGS)

check-dialects: ## the acceptance list tests/accept/dialects.toml; SABOTAGE, ONLY and CHECK_FLAGS as above
	@agent/dev/deps.sh check
	@$(MAKE) --no-print-directory engine bins
	@target/debug/warden-check dialects $(if $(SABOTAGE),--sabotage $(SABOTAGE)) $(if $(ONLY),--only $(ONLY)) $(CHECK_FLAGS)

bench-gateway: ## what the gateway costs beside vllm-router, smg and litellm (estimated: 15 minutes on a quiet machine and a release build; never run to its end yet)
	@agent/dev/deps.sh check
	@$(MAKE) --no-print-directory assets
	@$(CARGO) build --quiet -p warden-check
	@target/debug/warden-check dialects --only bench $(CHECK_FLAGS)

vllm: ## vLLM for processors, into the cache (5.9 GB on disk, some minutes; not needed for anything else)
	@agent/dev/vllm.sh

check-vllm: ## the acceptance list tests/accept/vllm.toml with a genuine vLLM (installs it first; not part of any other target)
	@$(MAKE) --no-print-directory vllm assets
	@$(CARGO) build --quiet -p warden-agent -p warden-check
	@target/debug/warden-check vllm $(if $(ONLY),--only $(ONLY)) $(CHECK_FLAGS)

clean: ## removes target/ (caches outside the tree stay)
	@rm -rf target
