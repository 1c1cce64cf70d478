# make test    what CI runs: installs what it needs, then checks and tests everything
# make check   gofmt, go mod tidy, vet, staticcheck
# make build   the tusk binary
# make bench       Tusk beside its peers, under 15 minutes; installs what it needs
# make bench-full  the same for hours: longer runs, more history, more peers
# make storm       faults for 20 minutes on each engine (ENGINE=postgres TIME=5m TASKS=200000 SEED=1): docs/storm-results.md
# make kills       kills and cuts, as many as KILLS=workers,backends,servers,cuts says: docs/storm-results.md
# make lost-commits  TASKS tasks (a million) in transactions whose commits lose their answers: no effect twice
# make storm-mutants  plants bugs in Tusk, one by one, and expects the storm to find each
# make model   explores the model of a lease within larger bounds: see docs/design/model.md
# make release VERSION=v0.1.0  archives, packages, bills of materials and checksums, in dist/
# make schemathesis  the HTTP API against its description (TIME=1h for longer)
# make hostile  hostile tokens of one tenant beside another tenant's load (TIME=10m for longer)
# make fuzz        each fuzz target for a minute (TIME=10m for more)
# make bench-mysql    Tusk beside the founding article's table on MariaDB, and five minutes without a deadlock
# make bench-postgres       Tusk on PostgreSQL against every bar it has to pass, about 10 minutes
# make bench-postgres-long  the same with long runs and millions of tasks: hours, 20 GB of disk

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
KILLS ?= 400,50,60,100
# Packages whose tests run at the same time: most of them wait much.
PACKAGES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# The packages whose tests take minutes. They begin first, so that none of them is left for the end.
LONG := ./server ./cli ./store/postgres ./store/couchbase ./store/ledgers ./internal/storm ./store/mysql ./archive
export GOFLAGS := -mod=readonly -buildvcs=false

.PHONY: help release test test-product test-bench test-deploy check build deps storm kills lost-commits storm-mutants \
	model schemathesis hostile fuzz bench bench-full bench-mysql bench-postgres bench-postgres-long

help:
	@sed -n 's/^# make/make/p' Makefile

build:
	CGO_ENABLED=0 go build -trimpath -o tusk ./cmd/tusk

release:
	CGO_ENABLED=0 GOFLAGS=-mod=readonly go -C deploy run ./release -version $(VERSION) -out ../dist

deps:
	@./scripts/deps
	@./scripts/schemathesis-deps
	@./scripts/duckdb-deps
	@./scripts/s3-deps
	@./scripts/gcs-deps
	@./scripts/azure-deps

check: deps
	@bad=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$bad" || { echo "gofmt would change: $$bad"; exit 1; }
	GOFLAGS=-mod=mod go mod tidy -diff
	GOFLAGS=-mod=mod go -C bench mod tidy -diff
	GOFLAGS=-mod=mod go -C deploy mod tidy -diff
	GOFLAGS=-mod=mod go -C bench/peers/riversqlite mod tidy -diff
	CGO_ENABLED=0 go vet ./...
	CGO_ENABLED=0 go run $(STATICCHECK) ./...
	CGO_ENABLED=0 go -C bench vet ./...
	CGO_ENABLED=0 go -C deploy vet ./...
	CGO_ENABLED=0 go -C bench/peers/riversqlite vet ./...

test: test-product test-bench test-deploy

test-product: check
	./scripts/test-race -p $(PACKAGES) -shuffle=on -timeout 40m $(LONG) ./...

test-bench: check
	CGO_ENABLED=0 ./scripts/in-memory go -C bench test -vet=off -shuffle=on ./...

test-deploy: check
	CGO_ENABLED=0 ./scripts/in-memory go -C deploy test -vet=off -shuffle=on ./...

storm: deps
	STORM_OLD=$$(./scripts/storm-old $(OLD)) STORM=$(or $(TIME),20m) STORM_TASKS=$(TASKS) STORM_SEED=$(SEED) \
		STORM_RESULTS=$(CURDIR)/docs/storm-results.md TUSK_TEST_ALL=1 \
		go test ./internal/storm -run '^TestStorm$$/$(if $(ENGINE),^$(ENGINE)$$)' -v -timeout 4h

kills: deps
	TUSK_TEST_KILLS=$(KILLS) STORM_SEED=$(SEED) \
		STORM_RESULTS=$(CURDIR)/docs/storm-results.md TUSK_TEST_ALL=1 \
		go test ./internal/storm -run '^TestKillsOfWorkers.*/$(if $(ENGINE),^$(ENGINE)$$)' -v -timeout 2h

lost-commits: deps
	TUSK_TEST_LOST_COMMITS=$(or $(TASKS),1000000) TUSK_TEST_ALL=1 \
		go test ./internal/storm -run '^TestCommitsThatLose.*/$(if $(ENGINE),^$(ENGINE)$$)' -v -timeout 6h

storm-mutants: deps
	STORM_MUTANTS=1 TUSK_TEST_ALL=1 go test ./internal/storm -run '^TestEveryMutant' -v -timeout 3h

model: deps
	TUSK_TEST_LONG=1 TUSK_TEST_ALL=1 go test ./internal/model -v -timeout 12h

schemathesis: deps
	TUSK_SCHEMATHESIS=$(or $(TIME),5m) TUSK_TEST_ALL=1 go test ./server -run TestTheAPIKeepsItsDescription -v -timeout 3h

hostile: deps
	TUSK_TEST_HOSTILE=$(or $(TIME),10m) TUSK_TEST_ALL=1 go test ./cli -run '^TestHostileTokens' -v -timeout 3h

fuzz:
	@./scripts/fuzz $(or $(TIME),1m)

bench:
	@./scripts/bench-deps
	CGO_ENABLED=0 go -C bench run ./beside

bench-full:
	@./scripts/bench-deps
	CGO_ENABLED=0 go -C bench run ./beside -full

bench-mysql:
	CGO_ENABLED=0 go -C bench run ./mysql -tasks 200000 -history 5000000
	CGO_ENABLED=0 go -C bench run ./mysql -soak 5m

bench-postgres: deps
	CGO_ENABLED=0 go -C bench run ./postgres

bench-postgres-long: deps
	CGO_ENABLED=0 go -C bench run ./postgres -long
