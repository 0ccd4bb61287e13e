#!/usr/bin/env bash
# Runs every attack of tests/attack on a release build, long enough for measurements, measures a throttled flood, and
# compares what clients of a router get when their member fails with the page about it.
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
DOCWARD_BIN=$(scripts/release.sh)
DOCWARD_ATTACK_SECONDS=${DOCWARD_ATTACK_SECONDS:-10}
export MONGOD DOCWARD_BIN DOCWARD_ATTACK_SECONDS

cargo test --test attack -- --nocapture --test-threads 1
cargo test --test patterns -- --nocapture --include-ignored --exact \
    throttle::a_trickle_is_nearly_as_fast_beside_a_flood_as_alone
cargo test --test protocol -- --include-ignored --exact router_errors::the_page_has_what_clients_get_when_a_member_fails
