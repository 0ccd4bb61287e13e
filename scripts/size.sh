#!/usr/bin/env bash
# `make size`: builds the release binary, prints its size and its start time, and fails if either exceeds its
# limit.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly MAX_BYTES=$((15 * 1024 * 1024))
readonly MAX_MILLISECONDS=50
readonly STARTS=11

docward=$(scripts/release.sh)

# Milliseconds from the start until docward prints its listening address; the upstream need not be reachable.
start() {
    local begin=${EPOCHREALTIME/[.,]/} end
    coproc "$docward" serve --listen 127.0.0.1:0 --upstream mongodb://127.0.0.1:1 2>/dev/null
    local process=$COPROC_PID
    # shellcheck disable=SC2034 # Only its time matters.
    read -r line <&"${COPROC[0]}"
    end=${EPOCHREALTIME/[.,]/}
    kill -KILL "$process"
    wait "$process" 2>/dev/null || true
    echo $(((end - begin) / 1000))
}

bytes=$(stat --format %s "$docward")
# The minimum, because other load on the machine only adds time.
milliseconds=$(for _ in $(seq "$STARTS"); do start; done | sort -n | sed -n 1p)
echo "$docward: $bytes bytes (at most $MAX_BYTES), listens after $milliseconds ms (at most $MAX_MILLISECONDS)"
((bytes <= MAX_BYTES && milliseconds <= MAX_MILLISECONDS))
