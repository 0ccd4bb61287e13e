#!/usr/bin/env bash
# `make invariants`: random statements against random rules on a real mongod, through docward and directly, from
# the same documents. tests/invariants/main.rs describes the comparison and the variables for seed and pattern.
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
export MONGOD
export DOCWARD_INVARIANTS_SECONDS="${DOCWARD_INVARIANTS_SECONDS:-600}"
exec cargo test --test invariants -- --nocapture
