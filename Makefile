# The menu. `make` alone lists it; CI runs `make test` too.

.DEFAULT_GOAL := help
.PHONY: help build test lint fuzz webhooks clients browsers kill soak bench clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the program: target/release/event-broker
	cargo build --release

test: ## everything CI checks: lint, then all tests of all crates
	scripts/test

lint: ## format, clippy and documentation, warnings refused
	scripts/lint

fuzz: ## fuzz the HTTP API against its OpenAPI document
	scripts/fuzz-api

webhooks: ## have other people's libraries verify our webhooks
	scripts/verify-webhooks

clients: ## have other people's generators make clients, and compile them
	scripts/generate-clients

browsers: ## attack the HTTP API from web pages in Chromium
	scripts/attack-browsers

kill: ## the long kill test: 200 times killed under load, nothing acknowledged lost
	@cargo test --all-features --test it kill -- --list | grep -q ': test$$' || { echo 'no test named kill in tests/it'; exit 1; }
	EVENT_BROKER_KILLS=200 cargo test --all-features --test it kill -- --nocapture

soak: ## half an hour of mixed load (SOAK_SECONDS=1800): memory, descriptors, threads and disk level off
	scripts/soak

bench: ## measure on this machine (a workspace of its own)
	cd bench && cargo run --release

clean: ## remove what was built; data folders stay
	cargo clean
	rm -rf bench/target
