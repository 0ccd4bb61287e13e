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
    rm -rf "$scratch"
}
trap cleanup EXIT

(cd dist && sha256sum --check --quiet SHA256SUMS)
machine=$(uname -m)
tarball=$(echo "$PWD"/dist/docward-*-linux-"$machine".tar.gz)
image=$(echo "$PWD"/dist/docward-*-image-"$machine".tar.gz)
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
try npm env -C "$scratch/npm" npx --offline docward

dpkg-deb --extract "$deb" "$scratch/deb"
[[ -f "$scratch/deb/etc/docward/docward.yaml" ]]
try deb env -i "$scratch/deb/usr/bin/docward"

# Without a container engine: the image's only layer as the root folder.
mkdir "$scratch/image" "$scratch/root"
tar -xzf "$image" -C "$scratch/image"
tar -xf "$scratch/image/layer.tar" -C "$scratch/root"
try image env -i "$(type -P chroot)" --userspec=65532:65532 "$scratch/root" /usr/bin/docward
