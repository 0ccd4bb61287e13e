#!/usr/bin/env bash
# Builds the scenario of MongoDB's driver for Go (tests/go), whose modules `go` stores in the user's cache folder, and
# prints the program's path. Exits with 77 if Go is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/fetching.bash

least=1.25

# Use the installed toolchain, and download no other.
export GOTOOLCHAIN=local GOMODCACHE="$cache/go-modules" GOCACHE="$cache/go-build" GOFLAGS="-modcacherw -mod=readonly"
type -P go >/dev/null || skip "go $least or newer is needed, and there is none on the PATH"
present=$(go env GOVERSION)
is_at_least "$least" "${present#go}" || skip "go $least or newer is needed, this is $present"

program="$(scripts/target-folder.sh)/drivers/go-scenario"
go -C tests/go build -o "$program" . >&2
echo "$program"
