#!/usr/bin/env bash
# What `make chaos` does: checked histories of every pattern, each for DOCWARD_CHAOS_SECONDS=20; clients of two drivers at
# work while members and docward are stepped down, stopped, killed, added, removed, reloaded and handed over
# (DOCWARD_CHAOS_EVENTS=56, in the order of DOCWARD_CHAOS_SEED); the time clients need after a step-down beside that of
# direct ones; and 10,000 idle connections. With DOCWARD_CHAOS_PATTERN=queue only the histories of that pattern.
# `chaos.sh soak` is a quarter of an hour of mixed load instead (DOCWARD_SOAK_SECONDS=900).
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
scripts/python-env.sh >/dev/null
export MONGOD

# One after the other, or they would measure each other.
run() {
    cargo test --test chaos -- --nocapture --include-ignored --exact "$1"
}

if [[ "${1:-}" == soak ]]; then
    run endurance::memory_is_flat_after_a_quarter_of_an_hour
    exit
fi
export DOCWARD_CHAOS_SECONDS="${DOCWARD_CHAOS_SECONDS:-20}"
run histories::every_pattern_keeps_its_promise
if [[ -n "${DOCWARD_CHAOS_PATTERN:-}" ]]; then
    exit
fi
export DOCWARD_CHAOS_EVENTS="${DOCWARD_CHAOS_EVENTS:-56}"
run whatever_happens_no_acknowledged_write_is_lost_or_repeated
run failover::recovery_from_a_step_down_takes_as_long_as_directly
run endurance::ten_thousand_idle_connections_are_held
