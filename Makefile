# Commands for daily work. `make help` lists them.
.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z-]+: ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+): ## (.*)/  make \1\t\2/' | expand -t 24

.PHONY: run
run: ## build docward and try it before a MongoDB in a scratch folder; Ctrl-C removes both
	@scripts/run.sh

.PHONY: test
test: ## run all tests; fetches the mongod, mongosh and Python packages they need
	@scripts/test.sh

.PHONY: invariants
invariants: ## random statements against random rules, directly and through docward, for ten minutes (DOCWARD_INVARIANTS_SECONDS=600)
	@scripts/invariants.sh

.PHONY: attack
attack: ## hostile clients on a release build: what they cost a well-behaved client (DOCWARD_ATTACK_SECONDS=10)
	@scripts/attack.sh

.PHONY: compat
compat: ## run pymongo's own test suite directly and through docward, and say what differs
	@scripts/compat.sh

.PHONY: drivers
drivers: ## run sessions of the Go and Java drivers and of ODMs directly and through docward, and say what differs
	@scripts/drivers.sh

.PHONY: odm
odm: ## run ODMs directly and through docward: nothing differs, and with docs/odm.md's rules no save loses an update
	@scripts/drivers.sh odm

.PHONY: chaos
chaos: ## checked histories of every pattern (DOCWARD_CHAOS_PATTERN=queue: of one only); clients while members and docward are killed; failover times
	@scripts/chaos.sh

.PHONY: soak
soak: ## a quarter of an hour of mixed load, and what becomes of docward's memory (DOCWARD_SOAK_SECONDS=900)
	@scripts/chaos.sh soak

.PHONY: bench
bench: ## measure what a message costs: time and allocations of triage, parsing, each pattern
	@cargo bench --bench messages

.PHONY: bench-compare
bench-compare: ## measure docward beside a bare relay, HAProxy and a direct connection (SECTIONS="unmatched idle")
	@MONGOD=$$(scripts/mongod.sh) && DOCWARD_BIN=$$(scripts/release.sh) && export MONGOD DOCWARD_BIN && cargo bench --bench compare -- $(SECTIONS) $(if $(WRITE),--write)

.PHONY: bench-shell
bench-shell: ## run the workloads of bench/shell by mongosh, then replay them over many connections (WRITE=1 keeps the results)
	@$(SHELLS) && cargo bench --bench compare -- shell replay $(if $(WRITE),--write)

.PHONY: record-shells
record-shells: ## record anew what bench-shell replays
	@$(SHELLS) && cargo bench --bench compare -- record-shells

SHELLS = MONGOD=$$(scripts/mongod.sh) && MONGOSH=$$(scripts/mongosh.sh) && DOCWARD_BIN=$$(scripts/release.sh) \
	&& export MONGOD MONGOSH DOCWARD_BIN

.PHONY: instructions
instructions: ## count the instructions of the hot paths and compare with the stored counts (STORE=1 stores them)
	@scripts/instructions.sh $(if $(STORE),store)

.PHONY: release
release: ## build docward as it is released, with a profile of its own traffic, and print where it is
	@scripts/release.sh

.PHONY: size
size: ## build the release binary and hold its size and its start against their limits
	@scripts/size.sh

.PHONY: fuzz
fuzz: ## run every fuzz target for ten minutes (FUZZ_SECONDS=600); needs a nightly compiler
	@scripts/fuzz.sh

.PHONY: deb
deb: ## build a Debian package with the service, manual pages and completions
	@scripts/deb.sh

.PHONY: try-systemd
try-systemd: ## install and run that package under a live systemd, in a container with Debian 12; needs root
	@scripts/try-systemd.sh

.PHONY: clean
clean: ## remove what was built
	cargo clean
