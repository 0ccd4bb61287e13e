#!/usr/bin/env bash
# What `make drivers` does: sessions of MongoDB's drivers for Go and Java and of ODMs, directly and through docward, and
# what differs; with `odm` as the first argument, of the ODMs only (`make odm`). What cannot be installed is skipped, by
# name. Further arguments are pytest's, for example `scripts/drivers.sh -k "go and standalone"`.
set -euo pipefail
cd "$(dirname "$0")/.."

sessions=(tests/python/compiled_drivers.py tests/python/odms.py)
if [[ ${1:-} == odm ]]; then
    sessions=(tests/python/odms.py)
    shift
fi

MONGOD=$(scripts/mongod.sh)
PYTHON=$(scripts/python-env.sh)
cargo build

DOCWARD_BIN="$(scripts/target-folder.sh)/debug/docward"
export MONGOD DOCWARD_BIN
# No file of `make test`: what is fetched and compiled here takes minutes.
exec "$PYTHON" -m pytest -p no:cacheprovider -rs --durations=0 "$@" "${sessions[@]}"
