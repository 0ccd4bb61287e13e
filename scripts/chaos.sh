#!/usr/bin/env bash
# `make chaos`: checked histories of every pattern, each for DOCWARD_CHAOS_SECONDS=20, before members' listeners and
# before two routers; clients of two drivers at work while members and docward step down, stop, are killed, added,
# removed, reloaded and handed over (DOCWARD_CHAOS_EVENTS=56, in the order of DOCWARD_CHAOS_SEED); the clients' recovery
# time after a stepdown compared with that of direct clients; 10,000 idle connections; and 500 clients of a pool
# (DOCWARD_CHAOS_CLIENTS) while connections are cut and users change. With DOCWARD_CHAOS_PATTERN=queue it runs only the
# histories of that pattern.
# `chaos.sh soak` runs 15 minutes of mixed load instead (DOCWARD_SOAK_SECONDS=900).
set -euo pipefail
cd "$(dirname "$0")/.."

MONGOD=$(scripts/mongod.sh)
scripts/python-env.sh >/dev/null
export MONGOD

# One after the other, because concurrent runs would disturb each other's measurements.
run() {
    cargo test --test chaos -- --nocapture --include-ignored --exact "$1"
}

if [[ "${1:-}" == soak ]]; then
    run endurance::memory_is_flat_after_a_quarter_of_an_hour
    exit
fi
export DOCWARD_CHAOS_SECONDS="${DOCWARD_CHAOS_SECONDS:-20}"
run histories::every_pattern_keeps_its_promise
run histories::every_pattern_keeps_its_promise_behind_two_routers
if [[ -n "${DOCWARD_CHAOS_PATTERN:-}" ]]; then
    exit
fi
export DOCWARD_CHAOS_EVENTS="${DOCWARD_CHAOS_EVENTS:-56}"
run no_acknowledged_write_is_lost_or_repeated_under_failures
run no_acknowledged_write_is_lost_or_repeated_behind_a_router
run side_by_side::two_routers_behind_a_balancer_survive_the_death_of_one
DOCWARD_CHAOS_EVENTS="${DOCWARD_BALANCED_EVENTS:-24}" scripts/drains.sh balanced_chaos
run failover::recovery_from_a_step_down_takes_as_long_as_directly
run endurance::ten_thousand_idle_connections_are_held
cargo test --test protocol -- --nocapture --include-ignored --exact \
    pool_chaos::hundreds_of_clients_are_not_mixed_up_while_connections_members_and_users_change
