#!/usr/bin/env bash
# `make compat`: pymongo's own test suite directly at a mongod and through docward, and prints the differences.
# Arguments are passed on, for example `scripts/compat.sh test/test_cursor.py` for a part of the suite.
# With POOL=2, docward shares two server connections among its clients. With TOPOLOGY=router or another of
# tests/python/topologies.py, the suite runs through routers before a replica set of three.
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
PYTHON=$(scripts/python-env.sh)
scripts/pymongo-suite.sh >/dev/null
cargo build

target=$(scripts/target-folder.sh)
DOCWARD_BIN="$target/debug/docward"
PYTHONPATH="$PWD/tests/python"
export MONGOD DOCWARD_BIN DOCWARD_TEST_POOL="${POOL:-}" PYTHONPATH
exec "$PYTHON" -m pymongo_suite --results "$target/compat" --topology "${TOPOLOGY:-members}" "$@"
