#!/usr/bin/env bash
# Builds the session of MongoDB's driver for Go (tests/go), whose modules `go` keeps in the user's cache folder, and
# prints the program's path. Ends with status 77 where there is no Go to build it with.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/fetching.bash

least=1.25

# The toolchain that is there, and no other one fetched instead.
export GOTOOLCHAIN=local GOMODCACHE="$cache/go-modules" GOCACHE="$cache/go-build" GOFLAGS="-modcacherw -mod=readonly"
type -P go >/dev/null || skip "go $least or newer is needed, and there is none on the PATH"
present=$(go env GOVERSION)
is_at_least "$least" "${present#go}" || skip "go $least or newer is needed, this is $present"

program="$(scripts/target-folder.sh)/drivers/go-session"
go -C tests/go build -o "$program" . >&2
echo "$program"
