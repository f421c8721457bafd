# Every task that a person runs. What takes more than a line is in scripts/.

.DEFAULT_GOAL := help
.PHONY: help setup demo try-migration authorize axum test test-clients test-matrix test-faults fuzz fuzz-server soak leak memcheck servers run build dist image test-image test-monitoring lint bench loadtest clean

help: ## List the tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing (done by the other tasks)
	@scripts/setup

demo: setup ## Show the module at work in a throw-away cluster of three nodes
	@cargo run --locked --example demo

try-migration: setup ## Move over from a Lua script and from redis-cell on throw-away servers (REDIS_CELL_SO=...)
	@cargo run --locked --example migration

authorize: setup ## Decide about a few requests with the Rust helper (REDIS_URL=...)
	@scripts/example authorize

axum: setup ## Start an HTTP service with rate limits on port 3000 (REDIS_URL=... LISTEN=...)
	@scripts/example axum

test: setup ## Run all tests, those on a real server included (RL_SERVER=path for another one)
	cargo test --locked --workspace
	CARGO_TARGET_DIR=target/fuzz cargo test --locked --manifest-path fuzz/Cargo.toml --no-default-features

test-clients: ## Test the Python and the Node helper (what they need goes into target/ and node_modules/)
	@scripts/setup clients
	cargo build --release --locked
	clients/python/test.sh
	clients/node/test.sh

test-matrix: servers ## Run server and fault tests on every supported server (or on SERVERS="redis-6.2.14 ...")
	@scripts/matrix

test-faults: servers ## Run all fault tests, with set clocks and files of other servers (SERVERS=... as above)
	@scripts/setup faults
	cargo test --locked --test faults -- --include-ignored --nocapture

fuzz: setup ## Fuzz numbers, requests, stored fields and decisions for SECONDS=60 in all
	@scripts/fuzz $(or $(SECONDS),60)

fuzz-server: setup ## Send random commands to a server for SECONDS=60 (RL_SEED=... repeats a run)
	RL_FUZZ_SECONDS=$(or $(SECONDS),60) cargo test --locked --test fuzz -- --nocapture

soak: setup ## Load a cluster for MINUTES=5, with failovers, and check every answer; into target/soak
	@MINUTES=$(or $(MINUTES),5) cargo run --locked --example soak

leak: setup ## Look for memory lost in CALLS=1000000 calls of each command, and loads and unloads
	RL_LEAK_CALLS=$(or $(CALLS),1000000) cargo test --release --locked --test leak -- --nocapture --test-threads=1

memcheck: setup ## Run the server tests under valgrind (about half an hour)
	@command -v valgrind >/dev/null || { echo "memcheck: valgrind is missing (Debian: apt-get install valgrind)" >&2; exit 1; }
	@scripts/valgrind

servers: setup ## Fetch the other servers of the matrix into target/servers
	@scripts/setup servers
	@scripts/servers

run: setup ## Start one server with the module in the foreground (PORT=6379)
	@scripts/run

build: setup ## Build the module for production
	cargo build --release --locked
	@echo "loadmodule $(CURDIR)/target/release/$$(cd target/release && ls libredis_token_bucket.so libredis_token_bucket.dylib 2>/dev/null)"

dist: setup ## Build the archives of a release for x86-64 and arm64 into target/dist
	@scripts/setup dist
	@scripts/dist

image: ## Build the container image with docker or buildah (TAG=... BASE=a Redis or Valkey image)
	@scripts/image

test-image: ## Lint docker/, build the image on stand-ins for its bases and start it (as root; RL_VALKEY=path)
	@scripts/setup image
	@scripts/test-image

test-monitoring: ## Test the alerts, also with Prometheus on a cluster that gets a deny spike (3 minutes)
	@scripts/setup monitoring
	promtool check config docker/monitoring/prometheus.yml
	promtool test rules docker/monitoring/alerts-test.yml
	cargo test --locked --test monitoring -- --nocapture --ignored

lint: setup ## Check formatting, clippy and the documentation, warnings denied
	cargo fmt --all --check
	python3 clients/vectors.py --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
	if command -v cargo-deny >/dev/null; then cargo deny --locked check bans licenses sources; fi

bench: setup ## Compare with other ways to limit a rate, into target/bench (ROUNDS=5, RIVAL_SO=... RIVAL_CMD=...)
	cargo run --release --locked -p redis-token-bucket-benches --example compare

loadtest: setup ## Find out how many shards a big tenant needs (RATE=decisions per second)
	@cargo run --release --locked -p redis-token-bucket-benches --example loadtest

clean: ## Remove what was built and fetched
	cargo clean
