#!/usr/bin/env bash
# Runs every attack of tests/attack on a release build, long enough for measurements, and measures a throttled flood.
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
DOCWARD_BIN=$(scripts/release.sh)
DOCWARD_ATTACK_SECONDS=${DOCWARD_ATTACK_SECONDS:-10}
export MONGOD DOCWARD_BIN DOCWARD_ATTACK_SECONDS

cargo test --test attack -- --nocapture --test-threads 1
cargo test --test patterns -- --nocapture --include-ignored --exact \
    throttle::a_trickle_is_nearly_as_fast_beside_a_flood_as_alone
