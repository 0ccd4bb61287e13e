# Commands for daily work. `make help` lists them.
.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z-]+: ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+): ## (.*)/  make \1\t\2/' | expand -t 24

.PHONY: run
run: ## build docward and try it before a MongoDB in a scratch folder; Ctrl-C removes both
	@scripts/run.sh

.PHONY: test
test: ## run the tests for every change; fetches the mongod, mongosh and Python packages they need
	@scripts/test.sh

.PHONY: test-merge
test-merge: ## run those and the tests that `.ci/run` adds: drivers, the console in a browser, the book, short attacks and failures
	@scripts/test.sh merge

.PHONY: test-pool
test-pool: ## run the tests of patterns with shared server connections (POOL=4)
	@scripts/test-pool.sh

.PHONY: invariants
invariants: ## random statements against random rules, directly and through docward, for ten minutes (DOCWARD_INVARIANTS_SECONDS=600)
	@scripts/invariants.sh

.PHONY: attack
attack: ## the effect of hostile clients on a well-behaved client, with a release build (DOCWARD_ATTACK_SECONDS=10)
	@scripts/attack.sh

.PHONY: compat
compat: ## run pymongo's own test suite directly and through docward, and print the differences (POOL=2: with a pool; TOPOLOGY=router)
	@scripts/compat.sh

.PHONY: drivers
drivers: ## run scenarios of drivers and of ODMs directly and through docward, and print the differences (POOL=2: with a pool)
	@scripts/drivers.sh

.PHONY: odm
odm: ## run ODMs directly and through docward: same results, and no lost updates with the rules of docs/odm.md
	@scripts/drivers.sh odm

.PHONY: chaos
chaos: ## checked histories of every pattern (DOCWARD_CHAOS_PATTERN=queue: only one); clients while members and docward are killed; failover times
	@scripts/chaos.sh

.PHONY: drains
drains: ## drains and hand-overs of one of two docwards behind HAProxy while drivers work; failed operations (DOCWARD_DRAINS=20)
	@scripts/drains.sh

.PHONY: elections
elections: ## step-downs and deaths of the primary while drivers work, directly and through a router; failed operations, longest waits
	@scripts/drains.sh elections

.PHONY: sockets
sockets: ## sockets and monitors of 1,000 clients of a replica set, directly and through docward (DOCWARD_CLIENTS=1000)
	@scripts/drains.sh sockets

.PHONY: logins
logins: ## what each driver gives up, and which operations fail, when a server without room ends its logins
	@PYMONGO_OLDER=$$(scripts/python-env.sh tests/python/requirements-older.txt) && export PYMONGO_OLDER \
		&& "$$(scripts/python-env.sh)" tests/python/logins.py

.PHONY: try-alerts
try-alerts: ## bring about the fault of each alert before a real Prometheus; when it fired and ended; needs Go
	@scripts/try-alerts.sh

.PHONY: chart
chart: ## helm checks the chart, and makes the objects of deploy/kubernetes of it; needs Go
	@HELM=$$(scripts/helm.sh) && export HELM && cargo test --test operations deployment::kubernetes

.PHONY: soak
soak: ## 15 minutes of mixed load, and docward's memory use (DOCWARD_SOAK_SECONDS=900)
	@scripts/chaos.sh soak

.PHONY: night
night: ## run deny, attack, chaos, invariants, drivers, odm, compat and soak, and print one summary (NIGHT="odm soak": only these)
	@scripts/night.sh

.PHONY: book
book: ## render the documentation as a book with search, and print its first page
	@scripts/book.sh

.PHONY: screenshots
screenshots: ## make the screenshots of docs/console.md again (DOCWARD_SCREENSHOT_MINUTES=15)
	@scripts/screenshots.sh

.PHONY: bench
bench: ## measure the cost of a message: time and allocations of triage, parsing, each pattern
	@cargo bench --bench messages

.PHONY: bench-compare
bench-compare: ## compare docward with a bare relay, HAProxy and a direct connection (SECTIONS="unmatched idle")
	@MONGOD=$$(scripts/mongod.sh) && DOCWARD_BIN=$$(scripts/release.sh) && export MONGOD DOCWARD_BIN && cargo bench --bench compare -- $(SECTIONS) $(if $(WRITE),--write)

.PHONY: goodput
goodput: ## what clients get of a server that can do a quarter of what they ask for, directly and through docward (WRITE=1 keeps the results)
	@MONGOD=$$(scripts/mongod.sh) && DOCWARD_BIN=$$(scripts/release.sh) && PYTHON=$$(scripts/python-env.sh) \
		&& PYMONGO_OLDER=$$(scripts/python-env.sh tests/python/requirements-older.txt) \
		&& export MONGOD DOCWARD_BIN PYTHON PYMONGO_OLDER && cargo bench --bench compare -- goodput $(if $(WRITE),--write)

.PHONY: bench-shell
bench-shell: ## run the workloads of bench/shell with mongosh, then replay them over many connections (WRITE=1 keeps the results)
	@$(SHELLS) && cargo bench --bench compare -- shell replay $(if $(WRITE),--write)

.PHONY: record-shells
record-shells: ## record again the commands that bench-shell replays
	@$(SHELLS) && cargo bench --bench compare -- record-shells

SHELLS = MONGOD=$$(scripts/mongod.sh) && MONGOSH=$$(scripts/mongosh.sh) && DOCWARD_BIN=$$(scripts/release.sh) \
	&& export MONGOD MONGOSH DOCWARD_BIN

.PHONY: instructions
instructions: ## count the instructions of the hot paths and compare with the stored counts (STORE=1 stores them)
	@scripts/instructions.sh $(if $(STORE),store)

.PHONY: release
release: ## build the release binary, with a profile of the training traffic, and print its path
	@scripts/release.sh

.PHONY: size
size: ## build the release binary and check its size and start time against their limits
	@scripts/size.sh

.PHONY: fuzz
fuzz: ## run every fuzz target for ten minutes (FUZZ_SECONDS=600); needs a nightly compiler
	@scripts/fuzz.sh

.PHONY: deb
deb: ## build a Debian package with the service, manual pages and completions
	@scripts/deb.sh

.PHONY: dist
dist: ## pack a static binary as tarball, Debian package, container image, Python wheel and npm package, with checksums and SBOM
	@scripts/dist.sh

.PHONY: try-dist
try-dist: ## install and run each package of dist/ where nothing of docward is; needs root
	@scripts/try-dist.sh

.PHONY: try-systemd
try-systemd: ## install and run that package under a live systemd, in a container with Debian 12; needs root
	@scripts/try-systemd.sh

.PHONY: deny
deny: ## check the licences, sources and versions of all dependencies against deny.toml
	@scripts/deny.sh

.PHONY: count
count: ## count the lines of code and of tests, and the words of the documentation
	@scripts/count.py

.PHONY: clean
clean: ## remove what was built
	cargo clean
