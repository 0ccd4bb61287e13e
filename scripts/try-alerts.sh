#!/usr/bin/env bash
# `make try-alerts`: checks the alert rules of deploy/prometheus with promtool, then brings about the fault of each
# alert before a real Prometheus, and prints when it fired and ended.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(scripts/prometheus.sh)
MONGOD=$(scripts/mongod.sh)
PYTHON=$(scripts/python-env.sh)
if [[ -z "${DOCWARD_BIN:-}" ]]; then
    cargo build
    DOCWARD_BIN="$(scripts/target-folder.sh)/debug/docward"
fi
PROMETHEUS="$tools/prometheus"
export MONGOD DOCWARD_BIN PROMETHEUS
"$tools/promtool" check rules deploy/prometheus/alerts.yaml
"$tools/promtool" test rules deploy/prometheus/alerts.test.yaml
exec "$PYTHON" tests/python/alerts.py "$@"
