#!/usr/bin/env bash
# Builds a Go program of the tests, whose modules `go` stores in the user's cache folder, and prints the program's path:
# the scenario of MongoDB's driver (`go`), or FerretDB (`other_server`). Exits with 77 if Go is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/fetching.bash

least=1.25

# Use the installed toolchain, and download no other.
export GOTOOLCHAIN=local GOMODCACHE="$cache/go-modules" GOCACHE="$cache/go-build" GOFLAGS="-modcacherw -mod=readonly"
type -P go >/dev/null || skip "go $least or newer is needed, and there is none on the PATH"
present=$(go env GOVERSION)
is_at_least "$least" "${present#go}" || skip "go $least or newer is needed, this is $present"

source=${1:-go}
program="$(scripts/target-folder.sh)/drivers/$source-program"
go -C "tests/$source" build -o "$program" . >&2
echo "$program"
