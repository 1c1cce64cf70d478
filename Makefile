# make test    what CI runs: installs what it needs, then checks and tests everything
# make check   gofmt, vet, staticcheck
# make build   the tusk binary
# make bench       Tusk beside its peers, under 15 minutes; installs what it needs
# make bench-full  the same for hours: longer runs, more history, more peers
# make bench-mysql    Tusk beside the founding article's table on MariaDB, and five minutes without a deadlock

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
export GOFLAGS := -mod=readonly -buildvcs=false

.PHONY: help test check build deps bench bench-full bench-mysql

help:
	@sed -n 's/^# make/make/p' Makefile

build:
	CGO_ENABLED=0 go build -trimpath -o tusk ./cmd/tusk

deps:
	@./scripts/deps

check: deps
	@bad=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$bad" || { echo "gofmt would change: $$bad"; exit 1; }
	CGO_ENABLED=0 go vet ./...
	CGO_ENABLED=0 go run $(STATICCHECK) ./...
	CGO_ENABLED=0 go -C bench vet ./...

test: check
	CGO_ENABLED=1 TUSK_TEST_ALL=1 go test -race -shuffle=on -timeout 20m ./...
	CGO_ENABLED=0 go -C bench test -shuffle=on ./...

bench:
	@./scripts/bench-deps
	CGO_ENABLED=0 go -C bench run ./beside

bench-full:
	@./scripts/bench-deps
	CGO_ENABLED=0 go -C bench run ./beside -full

bench-mysql:
	CGO_ENABLED=0 go -C bench run ./mysql -tasks 200000 -history 5000000
	CGO_ENABLED=0 go -C bench run ./mysql -soak 5m
