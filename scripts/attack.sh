#!/usr/bin/env bash
# Every attack of tests/attack on docward as it is released, long enough to be measured.
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
DOCWARD_BIN=$(scripts/release.sh)
DOCWARD_ATTACK_SECONDS=${DOCWARD_ATTACK_SECONDS:-10}
export MONGOD DOCWARD_BIN DOCWARD_ATTACK_SECONDS

exec cargo test --test attack -- --nocapture --test-threads 1
