#!/usr/bin/env bash
# Builds the session of MongoDB's driver for Go (tests/go), whose modules `go` keeps in the user's cache folder, and
# prints the program's path. Ends with status 77 where there is no Go to build it with.
set -euo pipefail
cd "$(dirname "$0")/.."

least=1.25
cache="${XDG_CACHE_HOME:-$HOME/.cache}/docward"

skip() {
    echo "go-session.sh: $1" >&2
    exit 77
}

# The toolchain that is there, and no other one fetched instead.
export GOTOOLCHAIN=local GOMODCACHE="$cache/go-modules" GOCACHE="$cache/go-build" GOFLAGS="-modcacherw -mod=readonly"
type -P go >/dev/null || skip "go $least or newer is needed, and there is none on the PATH"
present=$(go env GOVERSION)
[[ $(printf '%s\n' "$least" "${present#go}" | sort --version-sort | head -n 1) == "$least" ]] ||
    skip "go $least or newer is needed, this is $present"

program="$(scripts/target-folder.sh)/drivers/go-session"
go -C tests/go build -o "$program" . >&2
echo "$program"
