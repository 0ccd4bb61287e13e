#!/usr/bin/env bash
# Runs every attack of tests/attack on a release build, long enough for measurements.
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
DOCWARD_BIN=$(scripts/release.sh)
DOCWARD_ATTACK_SECONDS=${DOCWARD_ATTACK_SECONDS:-10}
export MONGOD DOCWARD_BIN DOCWARD_ATTACK_SECONDS

exec cargo test --test attack -- --nocapture --test-threads 1
