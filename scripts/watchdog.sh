#!/bin/sh
# Kills process $1 and removes folder $2 (if given) as soon as the process at the other end of stdin ends for any
# reason. A line on stdin stops the watchdog. Used by run.sh and by the test fixtures, so that no server outlives
# them.
if read -r _; then
    exit 0
fi
kill -9 "$1" 2>/dev/null
# Wait until the process releases the folder; bounded, because an unreaped zombie stays.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.1
done
if [ -n "${2:-}" ]; then
    rm -rf "$2"
fi
