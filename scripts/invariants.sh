#!/usr/bin/env bash
# What `make invariants` does: random statements against random rules on a real mongod, through docward and directly, from
# the same documents (tests/invariants/main.rs says what is compared, and which variables choose seed and pattern).
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
export MONGOD
export DOCWARD_INVARIANTS_SECONDS="${DOCWARD_INVARIANTS_SECONDS:-600}"
exec cargo test --test invariants -- --nocapture
