#!/usr/bin/env bash
# `make deny`: checks the licences, sources and versions of all dependencies against deny.toml. Installs cargo-deny once.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/fetching.bash

deny=$(cargo_program cargo-deny 0.20.2)

check() {
    "$deny" --manifest-path "$1" --config "$PWD/deny.toml" --locked check "${@:2}" -A license-exception-not-encountered \
        bans licenses sources
}
check Cargo.toml
# These have some of the same dependencies.
for other in bench/instructions bench/training fuzz; do
    check "$other/Cargo.toml" -A unmatched-skip -A unnecessary-skip
done
