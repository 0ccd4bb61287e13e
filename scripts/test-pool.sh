#!/usr/bin/env bash
# `make test-pool`: the tests of patterns with a docward whose clients share four server connections (POOL=4). Arguments
# go to the tests, for example `scripts/test-pool.sh tree`.
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
export MONGOD DOCWARD_TEST_POOL="${POOL:-4}"
exec cargo test --test patterns -- "$@"
