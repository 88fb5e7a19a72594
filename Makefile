# Two commands: make demo (see it work) and make test (see that it holds). `make help` lists the rest.

.PHONY: help setup demo dev test test-pg18 test-receivers check deny mutants bench schema psql clean
.DEFAULT_GOAL := help

help: ## This list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 11

setup: ## Install what is missing: PostgreSQL, plpgsql_check, tools from PyPI (says what it does)
	@scripts/setup

demo: setup ## A private Postgres, API, workers and a receiver; a clip, a job, its webhooks, its outputs
	cargo build --bins
	@cargo run --quiet --bin euterpe -- demo

dev: setup ## The same, and it stays up until Ctrl-C; README.md has the first job
	cargo build --bins
	@cargo run --quiet --bin euterpe -- dev

test: setup check ## Everything: check, unit and integration tests on a private PostgreSQL
	cargo test

test-pg18: ## The tests on PostgreSQL 18, fetched from npm into target/pg18; names the two that cannot run there
	scripts/test-pg18

test-receivers: setup ## The verifiers of webhooks, those in Node too; installs node where there is none
	@command -v npm >/dev/null || { scripts/setup node && scripts/setup; }
	EUTERPE_TEST_NODE=1 cargo test --test it receivers::

check: setup ## Format, clippy, plpgsql_check on every function, squawk on every migration
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	target/tools/bin/squawk migrations/postgres/*.sql
	cargo test --test it house_style

deny: ## Licences, bans and sources of every dependency; installs cargo-deny where there is none (minutes)
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny check bans licenses sources

mutants: setup ## Break what each test guards and see the test fail
	tests/mutants/run

bench: setup ## Cost of each call beside pgbench, and flatness beside a plain skip-locked table, as ratios
	cargo bench --bench queue --bench line --bench outbox --bench people --bench api --bench webhook --bench transcode

schema: setup ## Write what follows from the code: docs/schema.sql, the surface file, the help and the answers of psql on the pages
	EUTERPE_WRITE_SCHEMA=1 cargo test --test it -- schema:: rolling_upgrade::the_surface_file_of_this_release cli_page:: \
	  operations::the_pages_show_what_psql_prints

psql: setup ## psql on a private database with everything loaded (kept in .euterpe/)
	cargo run --quiet --bin euterpe -- psql

clean: ## Remove what was built, and the private database
	cargo clean
	rm -rf "$$(readlink -f .euterpe/pg)" .euterpe
