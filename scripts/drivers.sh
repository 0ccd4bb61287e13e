#!/usr/bin/env bash
# `make drivers`: scenarios of MongoDB's drivers for Go, Java and Node, of mongosh, of another server and of ODMs, directly
# and through docward in each topology of tests/python/topologies.py, and prints the differences; with `odm` as the
# first argument, only of the ODMs (`make odm`). Skips what cannot be installed, and prints its name. Further arguments go
# to pytest, for example `scripts/drivers.sh -k "go and routers-seeds"`.
# With POOL=2, docward shares two server connections among its clients.
set -euo pipefail
cd "$(dirname "$0")/.."

scenarios=(tests/python/compiled_drivers.py tests/python/other_server.py tests/python/odms.py tests/python/test_other_drivers.py)
if [[ ${1:-} == odm ]]; then
    scenarios=(tests/python/odms.py)
    shift
fi

MONGOD=$(scripts/mongod.sh)
PYTHON=$(scripts/python-env.sh)
cargo build

DOCWARD_BIN="$(scripts/target-folder.sh)/debug/docward"
export MONGOD DOCWARD_BIN DOCWARD_TEST_POOL="${POOL:-}"
# Not part of `make test`, because downloading and compiling takes minutes.
exec "$PYTHON" -m pytest -p no:cacheprovider -rs --durations=0 "$@" "${scenarios[@]}"
