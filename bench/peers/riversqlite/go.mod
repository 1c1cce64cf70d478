module github.com/tuskqueue/tusk/bench/peers/riversqlite

go 1.26.0

// The harness's module asks for the newest River; the driver for SQLite wants this one.
replace (
	github.com/riverqueue/river => github.com/riverqueue/river v0.47.0
	github.com/riverqueue/river/riverdriver => github.com/riverqueue/river/riverdriver v0.47.0
	github.com/riverqueue/river/rivershared => github.com/riverqueue/river/rivershared v0.47.0
	github.com/riverqueue/river/rivertype => github.com/riverqueue/river/rivertype v0.47.0
	github.com/tuskqueue/tusk => ../../../
	github.com/tuskqueue/tusk/bench => ../../
)

require (
	github.com/riverqueue/river v0.51.0
	github.com/riverqueue/river/riverdriver/riversqlite v0.47.0
	github.com/tuskqueue/tusk/bench v0.0.0
	modernc.org/sqlite v1.60.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/riverqueue/river/riverdriver v0.51.0 // indirect
	github.com/riverqueue/river/rivershared v0.51.0 // indirect
	github.com/riverqueue/river/rivertype v0.51.0 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	modernc.org/libc v1.77.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)
