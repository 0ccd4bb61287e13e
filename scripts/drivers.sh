#!/usr/bin/env bash
# What `make drivers` does: sessions of MongoDB's drivers for Go and Java, directly and through docward, and what
# differs. A language whose tools are not there is skipped, by name. Arguments are pytest's, for example
# `scripts/drivers.sh -k "go and standalone"`.
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
PYTHON=$(scripts/python-env.sh)
cargo build

DOCWARD_BIN="$(scripts/target-folder.sh)/debug/docward"
export MONGOD DOCWARD_BIN
# No file of `make test`: what is fetched and compiled here takes minutes.
exec "$PYTHON" -m pytest -p no:cacheprovider -rs --durations=0 "$@" tests/python/compiled_drivers.py
