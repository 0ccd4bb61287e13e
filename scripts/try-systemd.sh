#!/usr/bin/env bash
# `make try-systemd`: builds the Debian package, boots Debian 12 with systemd in a container (systemd-nspawn),
# and runs tests/systemd/test_service.py there in front of a mongod. Removes everything except the unpacked Debian in the
# user's cache. If it cannot run, it prints the reason and exits with success.
set -euo pipefail
cd "$(dirname "$0")/.."

report() { printf 'try-systemd.sh: %s\n' "$*" >&2; }
skip() {
    report "skipped: $*"
    exit
}

[[ "$(uname -s)" == Linux ]] || skip "systemd needs Linux"
((EUID == 0)) || skip "a container that boots needs root: sudo --preserve-env=PATH,HOME make try-systemd"
type -P systemd-nspawn >/dev/null || skip "there is no systemd-nspawn (on Debian: apt-get install systemd-container)"
type -P mmdebstrap >/dev/null || skip "there is no mmdebstrap (on Debian: apt-get install mmdebstrap)"

packages=systemd,systemd-sysv,dbus,adduser,apt,iproute2,libcurl4,man-db,openssl,dnsmasq-base,python3-pymongo
cache="${XDG_CACHE_HOME:-$HOME/.cache}/docward"
debian="$cache/debian-12-$(sha256sum <<<"$packages" | cut -c1-12).tar"

scratch=
machine=
leader=
cleanup() {
    trap '' INT TERM HUP
    # Like a power button: systemd in the container stops its services.
    if [[ -n "$leader" ]]; then kill -RTMIN+4 "$leader" 2>/dev/null || true; fi
    for _ in {1..100}; do
        kill -0 "$machine" 2>/dev/null || break
        sleep 0.1
    done 2>/dev/null
    if [[ -n "$machine" ]]; then kill -KILL "$machine" 2>/dev/null || true; fi
    wait
    if [[ -n "$scratch" ]]; then rm -rf "$scratch"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

mkdir -p "$cache"
if [[ ! -e "$debian" ]]; then
    report "unpacking Debian 12 (once)"
    mmdebstrap --quiet --format=tar --variant=minbase --include="$packages" bookworm "$debian.$$"
    mv "$debian.$$" "$debian"
fi
scratch=$(mktemp -d "${TMPDIR:-/tmp}/docward-systemd.XXXXXX")
root="$scratch/root"
mkdir "$root"
tar --extract --file "$debian" --directory "$root" --exclude './dev/*'

install -D "$(scripts/mongod.sh)" "$root/opt/test/mongod"
install -m 0644 tests/systemd/*.py "$root/opt/test/"
# Two packages of one build, for an upgrade; cargo-deb keeps only the last. Its last output line is the path.
for revision in 2 1; do
    install -m 0644 "$(scripts/deb.sh --deb-revision "$revision" | tail -n 1)" "$root/opt/test/docward-$revision.deb"
done
echo docward-test >"$root/etc/hostname"
echo 'nameserver 127.0.0.1' >"$root/etc/resolv.conf"
install -m 0644 /dev/stdin "$root/etc/systemd/system/mongod-test.service" <<'UNIT'
[Service]
StateDirectory=mongod
ExecStart=/opt/test/mongod --replSet rs0 --bind_ip 127.0.0.1 --dbpath /var/lib/mongod --wiredTigerCacheSizeGB 0.25
StandardOutput=null
UNIT
install -m 0644 /dev/stdin "$root/etc/systemd/system/dnsmasq-test.service" <<'UNIT'
[Service]
ExecStart=/usr/sbin/dnsmasq --keep-in-foreground --no-resolv --no-hosts --address=/db1.example.net/127.0.0.1 \
    --srv-host=_mongodb._tcp.cluster0.example.net,db1.example.net,27017 --txt-record=cluster0.example.net,replicaSet=rs0
UNIT

# A host without systemd has no unit for the container.
unit=()
[[ -d /run/systemd/system ]] || unit=(--keep-unit)
systemd-nspawn --quiet --directory "$root" --machine "docward-test-$$" --register=no "${unit[@]}" --private-network \
    --resolv-conf=off --timezone=off --boot </dev/null >"$scratch/console" 2>&1 &
machine=$!

inside() {
    nsenter --target "$leader" --mount --uts --ipc --net --pid --cgroup --root --wd -- \
        env --ignore-environment PATH=/usr/sbin:/usr/bin LANG=C.UTF-8 HOME=/root TERM=dumb PYTHONDONTWRITEBYTECODE=1 "$@"
}
booted() {
    leader=$(pgrep --parent "$machine" | head -n 1) && [[ -n "$leader" ]] &&
        [[ "$(inside systemctl is-system-running 2>/dev/null)" == @(running|degraded) ]]
}
shopt -s extglob
for _ in {1..300}; do
    if booted; then break; fi
    if ! kill -0 "$machine" 2>/dev/null; then
        tail -n 5 "$scratch/console" >&2
        skip "a container with systemd does not boot here, see above"
    fi
    sleep 0.2
done
booted || skip "systemd did not come up within a minute: $(tail -n 1 "$scratch/console")"

inside systemctl start mongod-test dnsmasq-test
if ! inside python3 /opt/test/test_service.py /opt/test/docward-{1,2}.deb; then
    report "the end of the journal:"
    inside journalctl --no-pager --lines 60 --output short-precise >&2
    exit 1
fi
