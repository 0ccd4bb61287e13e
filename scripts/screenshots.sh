#!/usr/bin/env bash
# `make screenshots`: makes the images of docs/console.md again, with a debug build.
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
PYTHON=$(scripts/python-env.sh)
cargo build
DOCWARD_BIN="$(scripts/target-folder.sh)/debug/docward"
export MONGOD DOCWARD_BIN
exec "$PYTHON" tests/python/screenshots.py
