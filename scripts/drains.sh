#!/usr/bin/env bash
# `make drains`: drains and hand-overs of one of two docwards behind HAProxy while drivers work
# (DOCWARD_DRAINS=20 for each of DOCWARD_BALANCE="roundrobin leastconn source"; DOCWARD_TOPOLOGY=members; DOCWARD_SERVICE=0: without a service
# connection). Prints the duration of each, and the failed operations.
# `drains.sh elections` (`make elections`): elections instead, directly and through a router (DOCWARD_ELECTIONS=3).
# `drains.sh balanced_chaos` (part of `make chaos`): members and docwards fail at random (DOCWARD_CHAOS_WAY=seeds: without HAProxy).
# `drains.sh sockets` (`make sockets`): what 1,000 clients hold (DOCWARD_CLIENTS=1000).
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
PYTHON=$(scripts/python-env.sh)
if [[ -z "${DOCWARD_BIN:-}" ]]; then
    cargo build
    DOCWARD_BIN="$(scripts/target-folder.sh)/debug/docward"
fi
export MONGOD DOCWARD_BIN
exec "$PYTHON" "tests/python/${1:-drains}.py"
