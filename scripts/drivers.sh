#!/usr/bin/env bash
# `make drivers`: scenarios of MongoDB's drivers for Go and Java, of another server and of ODMs, directly and through docward, and
# prints the differences; with `odm` as the first argument, only of the ODMs (`make odm`). Skips what cannot be
# installed, and prints its name. Further arguments go to pytest, for example `scripts/drivers.sh -k "go and
# standalone"`.
# With POOL=2, docward shares two server connections among its clients. Then the scenarios of Node's driver and of mongosh
# are run too, which `make test` runs without a pool.
set -euo pipefail
cd "$(dirname "$0")/.."

scenarios=(tests/python/compiled_drivers.py tests/python/other_server.py tests/python/odms.py ${POOL:+tests/python/test_other_drivers.py})
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
