#!/usr/bin/env bash
# `make try-dist`: installs each package of dist/ where nothing of docward is, and lets each docward forward a client's
# commands to a real mongod. Needs root for the Debian package and the image.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
docward= mongod=
cleanup() {
    [[ -z "$docward" ]] || kill "$docward" 2>/dev/null || true
    [[ -z "$mongod" ]] || kill "$mongod" 2>/dev/null || true
    wait || true
    if [[ -d "$scratch/debian" ]]; then
        umount "$scratch/debian/root" || true
        umount "$scratch/debian" || true
    fi
    rm -rf "$scratch"
}
trap cleanup EXIT

(cd dist && sha256sum --check --quiet SHA256SUMS)
machine=$(uname -m)
tarball=$(echo "$PWD"/dist/docward-*-linux-"$machine".tar.gz)
image=$(echo "$PWD"/dist/docward-*-image-"$machine".tar)
wheel=$(echo "$PWD"/dist/docward-*.whl)
npm=$(echo "$PWD"/dist/docward-*-npm-"$machine".tgz)
deb=$(echo "$PWD"/dist/docward_*.deb)

python=$(scripts/python-env.sh)
mkdir "$scratch/db"
"$(scripts/mongod.sh)" --dbpath "$scratch/db" --port 27981 --bind_ip 127.0.0.1 >"$scratch/mongod.log" &
mongod=$!

# Starts a docward, writes and reads through it, and ends it.
try() {
    local name=$1
    shift
    "$@" --version
    "$@" serve --upstream mongodb://127.0.0.1:27981 --listen 127.0.0.1:27982 >"$scratch/$name.log" 2>&1 &
    docward=$!
    "$python" - "$name" <<'PYTHON'
import sys
from pymongo import MongoClient

client = MongoClient("mongodb://127.0.0.1:27982", serverSelectionTimeoutMS=20000)
client.dist.tried.insert_one({"_id": sys.argv[1]})
assert client.dist.tried.find_one({"_id": sys.argv[1]})
PYTHON
    kill "$docward"
    wait "$docward"
    docward=
    echo "$name: works"
}

mkdir "$scratch/tarball"
tar -xzf "$tarball" -C "$scratch/tarball" --strip-components 1
try tarball env -i "$scratch/tarball/bin/docward"

python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" --quiet install --no-index "$wheel"
try wheel env -i "$scratch/venv/bin/docward"

mkdir "$scratch/npm"
(cd "$scratch/npm" && npm init --yes >/dev/null && npm install --offline --no-audit --no-fund --silent "$npm")
env -C "$scratch/npm" npx --offline docward --version
# npx does not pass signals on.
try npm env -i "$scratch/npm/node_modules/.bin/docward"

# dpkg installs and removes it over this system, of which a layer in memory takes all changes.
mkdir "$scratch/debian"
mount -t tmpfs tmpfs "$scratch/debian"
mkdir "$scratch"/debian/{upper,work,root}
mount -t overlay overlay "$scratch/debian/root" \
    -o "lowerdir=/,upperdir=$scratch/debian/upper,workdir=$scratch/debian/work"
inside=(env -i "PATH=$PATH" DEBIAN_FRONTEND=noninteractive "$(type -P chroot)" "$scratch/debian/root")
cp "$deb" "$scratch/debian/root/tmp/docward.deb"
"${inside[@]}" dpkg --install /tmp/docward.deb >"$scratch/dpkg.log" 2>&1 || {
    cat "$scratch/dpkg.log"
    exit 1
}
"${inside[@]}" docward check --config /etc/docward/docward.yaml
try deb "${inside[@]}" /usr/bin/docward
"${inside[@]}" dpkg --purge docward >>"$scratch/dpkg.log" 2>&1
[[ ! -e "$scratch/debian/root/usr/bin/docward" && ! -e "$scratch/debian/root/etc/docward/docward.yaml" ]]

# Without a container engine: the image's only layer as the root folder.
mkdir "$scratch/image" "$scratch/root"
tar -xf "$image" -C "$scratch/image"
tar -xzf "$scratch/image/layer.tar.gz" -C "$scratch/root"
try image env -i "$(type -P chroot)" --userspec=65532:65532 "$scratch/root" /usr/bin/docward

# A container engine reads it.
if type -P podman >/dev/null; then
    podman --root "$scratch/podman" --storage-driver vfs load --quiet --input "$image"
fi
