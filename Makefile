# Weir. `make help` lists what there is to do.
SHELL := /bin/bash
.DEFAULT_GOAL := help

CACHE := $(or $(WEIR_CACHE),$(HOME)/.cache/weir)
VENV := $(CACHE)/venv/bin
export CARGO_TARGET_DIR := $(CACHE)/target
export UV_PROJECT_ENVIRONMENT := $(CACHE)/venv

.PHONY: test-clients bench-wake sbom compatibility bad-days test-api-schema help setup demo demo-minor up down status test test-long check soak fmt gen bench-tproc-c bench-demo bench-verdict bench-write bench-write-capped bench-wal-distance oracle fuzz bench-redo bench-pageserver docs docs-serve soak-outage soak-races sim torture torture-control model bench-reconciler bench-proxy bench-api images test-images soak-churn bench-floors bench-neighbours bench-api-cost bench-security

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/:.*## /\t/' | expand -t 18

setup: ## install and build what is missing (idempotent)
	@scripts/setup

demo: setup ## set up, start Weir, and do its main job on four real computes (about 18 min)
	@./weir up
	@$(VENV)/python bench/demo.py

demo-minor: setup ## four computes moved onto another minor of Postgres under load, and back (about 5 min)
	@./weir up
	@$(VENV)/python bench/minor_upgrade.py

up: ## start Weir (after `make setup`)
	@./weir up

down: ## stop Weir; leaves no process and no mount
	@./weir down

status: ## what runs, where, and how it is
	@./weir status

# Of the running Weir that `make compatibility` tries the client on.
WEIR_KEY_FILE ?= $(or $(WEIR_HOME),/var/lib/weir)/secrets/api_key
WEIR_URL ?= http://127.0.0.1:7400

compatibility: ## every command of neonctl on a running Weir; renews docs/compatibility.md (about 5 min)
	@cd scripts && $(VENV)/python -m devtools.compatibility --url $(WEIR_URL) --key-file $(WEIR_KEY_FILE)

test: ## set up what is missing, then every check and every test, with a ledger of the time
	@scripts/test

test-long: ## the tests of which `make test` has a shorter form, in full
	@scripts/test --long

test-clients: ## drivers' own tests at a Weir, compared with a stock Postgres (after `make setup`; about 45 min)
	@nice $(VENV)/python storage/clients/run.py

test-terraform: ## the Terraform provider: its checks and tests, and OpenTofu against a real Weir (about 5 min; cold 5 more)
	@cd scripts && for each in format vet test acceptance; do \
		$(VENV)/python -m devtools.terraform $$each || exit 1; done

check: ## the fast part of `make test`: formats, lints, types, unit tests of Python and the console
	@scripts/test --fast

# Where `make sbom` writes to.
SBOM ?= sbom.cdx.json

sbom: ## what others wrote and Weir is made of, as CycloneDX, and which licences do not fit (after `make setup`)
	@cd scripts && $(VENV)/python -m devtools.sbom --out $(abspath $(SBOM))

bad-days: ## what goes wrong, who notices, how it heals: the tests of docs/bad-days.md, case by case (about 10 min)
	@cd scripts && $(VENV)/python -m devtools.bad_days

# Options of `make images`: docker/README.md.
ARGS ?=

images: ## the images of docker/compose.yaml and a bill of materials of each, by buildah (root; ARGS="--help")
	@PYTHONPATH=scripts $(VENV)/python docker/images/build.py $(ARGS)

test-images: ## a whole Weir of those images in containers of runc, a safekeeper and the worker killed, keys changed (root; a few minutes)
	@cd docker/images && $(VENV)/pytest -q

soak: ## property tests and the simulation with fresh seeds, for ten minutes
	@scripts/soak

# Seeds of `make sim`.
SEEDS ?= 10000

sim: ## the simulation of the log's protocol over SEEDS seeds (10000: about half a minute once compiled)
	@cd storage && WEIR_SIM_SEEDS=$(SEEDS) cargo test --release --locked -p sim -- --nocapture

# Trials of `make torture`, the seed of the first one, and after how long no further one begins.
N ?= 200
SEED ?= 1
MINUTES ?= 360
# How many trials go on side by side.
JOBS ?= 1
# What else the machine does meanwhile, for the result.
REMARK ?=

torture: ## N trials: real processes, faults by a seed, clients' histories checked (200: about three hours)
	@nice $(VENV)/python storage/torture/run.py --trials $(N) --seed $(SEED) --jobs $(JOBS) --minutes $(MINUTES) --remark '$(REMARK)'

# Trials of `make torture-control`, of which each takes about a minute.
TRIALS ?= 30

torture-control: ## TRIALS trials: changes of branches while API, worker and other services are killed (30: half an hour)
	@nice $(VENV)/python e2e/system/storm/run.py --trials $(TRIALS) --seed $(SEED)

test-api-schema: ## requests made of the API's description: bounds, random ones, chains (about ten minutes)
	@WEIR_TEST_LONG=1 $(VENV)/pytest -q --durations=2 backend/tests/test_api_schema.py

# Seconds for each scenario of `make model`.
MODEL_SECONDS ?= 50

model: ## the log's protocol in every order of events, in larger bounds than `make test` (at most 10 min once compiled)
	@cd storage && cargo run --release --locked -p protocol-model -- $(MODEL_SECONDS)

soak-races: ## the engine's tests 20 times beside busy loops, to find those that race (hours)
	@scripts/soak --races --system

soak-outage: ## an object store that takes nothing for an hour, in real time (takes an hour; needs mount)
	@$(VENV)/python bench/outage.py

# Of `make soak-churn`.
CHURN_SECONDS ?= 1800

soak-churn: ## everything made and removed in a loop for half an hour, or CHURN_SECONDS: nothing may grow
	@$(VENV)/python bench/churn.py --seconds $(CHURN_SECONDS)

fmt: ## format all code
	@cd storage && cargo fmt --all
	@$(VENV)/ruff format . && $(VENV)/ruff check --fix-only --quiet .
	@cd frontend && npm run --silent format

# Material for MkDocs speaks of its successor at every build; docs/adr/0042 has what Weir makes of that.
docs docs-serve: export NO_MKDOCS_2_WARNING := 1

docs: ## the documentation as a site, in ~/.cache/weir/site; dead links and anchors are errors
	@$(VENV)/mkdocs build --site-dir $(CACHE)/site && echo "$(CACHE)/site/index.html"

# Where `make docs-serve` listens.
DOCS_ADDRESS ?= 127.0.0.1:7480

docs-serve: ## the documentation in a browser, built again whenever a page changes
	@$(VENV)/mkdocs serve --dev-addr $(DOCS_ADDRESS)

gen: ## regenerate what is generated and committed: OpenAPI, the console's client, its forms' schemas
	@scripts/gen

bench-tproc-c: ## TPROC-C on a stock Postgres in a temporary directory, for comparison
	@$(VENV)/python bench/tproc-c/stock.py

bench-demo: ## the demo's workload and report again, on the Weir that runs
	@$(VENV)/python bench/demo.py

bench-rollout-scale: ## rollouts over 100, 1,000 and 10,000 simulated computes: plan time, computes a second, memory
	@$(VENV)/python bench/rollout_scale.py

bench-reconciler: ## rounds of the reconciler over 10,000 suspended projects, each below 2 s (about 2 min)
	@$(VENV)/python bench/reconciler.py

bench-api: ## how fast the API answers with 10,000 projects at 200 requests a second (about 4 min)
	@$(VENV)/python bench/api.py

bench-api-cost: ## processor time and statements of a request to the API, by kind (about 4 min; BESIDE=CHECKOUT compares)
	@$(VENV)/python bench/api.py --cost $(if $(BESIDE),--beside $(BESIDE))

bench-write: ## writes on Weir beside stock Postgres with and without a standby, on a Weir that runs (two to three hours)
	@$(VENV)/python bench/write.py

bench-floors: ## a commit on Weir beside what Postgres, the kernel and three fsyncs cost by themselves (about 15 min)
	@$(VENV)/python bench/floors.py

bench-security: ## what protection costs: writes and starts with TLS, users and control groups on and off (root; about 12 min)
	@$(VENV)/python bench/security.py $(if $(REMARK),--remark '$(REMARK)')

bench-write-capped: ## the same where WAL is the limit: images on and off at 4 MB of WAL a second (about an hour)
	@$(VENV)/python bench/write.py --wal-rate 4 --arms weir_images weir_pushdown --clients 4 16 \
		--results bench/results/write-capped.json

bench-neighbours: ## what a neighbour's commits take while another tenant storms, on a Weir that runs (about 12 min)
	@$(VENV)/python bench/neighbours.py

bench-wake: ## how long the first client of a suspended database waits (needs a running Weir; about 3 min)
	@$(VENV)/python bench/wake.py

bench-wal-distance: ## WAL volume against checkpoint distance on a stock Postgres (about 15 min)
	@$(VENV)/python bench/wal_distance.py

oracle: ## redo against Postgres, two minors: its own suites, every page after every record (about half an hour, 20 GB of disk)
	@$(VENV)/python bench/oracle.py && $(VENV)/python bench/oracle_compute.py && $(VENV)/python bench/readback.py

# Seconds for each fuzz target.
SECONDS_EACH ?= 600

fuzz: ## fuzz decoding, redo, layer files and frames, SECONDS_EACH for each target, from seeds of real WAL (needs cargo-fuzz)
	@seeds=$$(mktemp -d) && trap 'rm -rf "$$seeds"' EXIT && $(VENV)/python bench/oracle.py --seeds "$$seeds" && storage/fuzz/run $(SECONDS_EACH) "$$seeds"

bench-redo: ## what decoding and redo cost, beside Postgres's recovery and pg_waldump (about 5 min, in memory)
	@$(VENV)/python bench/redo.py

bench-pageserver: ## ingest, reads, and what is written and kept, on the WAL of real workloads (15 to 35 min)
	@$(VENV)/python bench/pageserver.py

bench-proxy: ## what the proxy costs beside none, and its pooler beside PgBouncer (PGBOUNCER=PATH; about 15 min)
	@$(VENV)/python bench/proxy.py $(if $(PGBOUNCER),--pgbouncer $(PGBOUNCER))

bench-verdict: ## how often verdicts on computes and waves are wrong, on recorded traces
	@$(VENV)/python bench/verdict/calibrate.py
