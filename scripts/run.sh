#!/usr/bin/env bash
# `make run`: builds docward, starts a one-member replica set in a temporary folder and docward with rules/ in
# front of it, and prints commands to try. Ctrl-C, SIGTERM or a failed start stops everything and removes all files.
set -euo pipefail
cd "$(dirname "$0")/.."

# Commands for the user to paste. ADDRESS is docward's; the commands match rules/.
introduce() {
    cat <<TEXT

  docward is listening on $1, in front of a MongoDB replica set of one member.
  Rules: rules/*.yaml      Connection string: mongodb://$1/shop

  Open a shell in another terminal:

    npx mongosh mongodb://$1/shop

  and paste, one at a time:

    // gets a number on its way: look at order_no
    db.orders.insertOne({_id: 1, status: "new", paid_by: "Ada"})
    db.orders.findOne()

    // rejected: it would erase what others wrote
    db.orders.replaceOne({_id: 1}, {status: "sent"})

    // rewritten: the reading that arrives last is older than the stored one, which stays
    use iot
    db.devices.updateOne({_id: 7}, {\$set: {temperature: 21, published_at: new Date()}}, {upsert: true})
    db.devices.updateOne({_id: 7}, {\$set: {temperature: 4, published_at: new Date(0)}})
    db.devices.findOne()

  Ctrl-C stops everything.

TEXT
}

report() { printf 'run.sh: %s\n' "$*" >&2; }

free_port() {
    python3 - "$1" <<'PYTHON'
import socket, sys

for port in (int(sys.argv[1]), 0):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        print(probe.getsockname()[1])
        break
PYTHON
}

scratch=
cleanup() {
    trap '' INT TERM HUP
    # docward was started last and stops first. The list of jobs comes from the shell, so that a signal right after a
    # start misses none.
    for pid in $(jobs -p | tac); do
        kill -TERM "$pid" 2>/dev/null || continue
        for _ in {1..100}; do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    if [[ -n "$scratch" ]]; then rm -rf "$scratch"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

mongod=$(scripts/mongod.sh)
python=$(scripts/python-env.sh)
# The profile of the tests: it is built in a fraction of the time of a release, and is built once for both.
cargo build
docward="$(scripts/target-folder.sh)/debug/docward"

scratch=$(mktemp -d "${TMPDIR:-/tmp}/docward-run.XXXXXX")
mkdir "$scratch/data"
mongod_port=$(free_port 27017)
docward_port=$(free_port 27018)

# setsid: the terminal's Ctrl-C reaches only this script, so that cleanup controls the order.
report "starting mongod on 127.0.0.1:$mongod_port"
setsid "$mongod" --replSet rs0 --bind_ip 127.0.0.1 --port "$mongod_port" --dbpath "$scratch/data" \
    --logpath "$scratch/mongod.log" --nounixsocket --wiredTigerCacheSizeGB 0.25 --oplogSize 256 \
    </dev/null >/dev/null &
mongod_pid=$!

if ! "$python" - "$mongod_port" "$mongod_pid" <<'PYTHON'
import os, sys, time
from pymongo import MongoClient
from pymongo.errors import ConnectionFailure

port, pid = map(int, sys.argv[1:])
server = MongoClient("127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=500)
member = {"_id": 0, "host": f"127.0.0.1:{port}"}
deadline = time.monotonic() + 60
initiated = False
while True:
    try:
        if not initiated:
            server.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
            initiated = True
        if server.admin.command("hello")["isWritablePrimary"]:
            break
    except ConnectionFailure:
        pass
    os.kill(pid, 0)  # fails when mongod has died
    if time.monotonic() > deadline:
        sys.exit("no primary within a minute")
    time.sleep(0.05)
PYTHON
then
    report "mongod did not become a primary; the end of its log:"
    tail -n 20 "$scratch/mongod.log" >&2 || true
    exit 1
fi

report "starting docward on 127.0.0.1:$docward_port"
setsid "$docward" serve --listen "127.0.0.1:$docward_port" --topology router \
    --upstream "mongodb://127.0.0.1:$mongod_port/?replicaSet=rs0" --rules rules/ \
    </dev/null >"$scratch/docward.out" &
docward_pid=$!
until grep -q '^listening on ' "$scratch/docward.out"; do
    if ! kill -0 "$docward_pid" 2>/dev/null; then
        report "docward did not start, see above"
        exit 1
    fi
    sleep 0.1
done

introduce "127.0.0.1:$docward_port"

wait -n "$mongod_pid" "$docward_pid" || true
kill -0 "$docward_pid" 2>/dev/null || { report "docward stopped, see above"; exit 1; }
report "mongod stopped; the end of its log:"
tail -n 20 "$scratch/mongod.log" >&2
exit 1
