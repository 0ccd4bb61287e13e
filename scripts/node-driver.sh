#!/usr/bin/env bash
# Prints the node_modules folder that holds MongoDB's driver for Node in a fixed version,
# installed once from npm into the user's cache folder. Only the path goes to stdout.
# Parallel calls are safe.
set -euo pipefail

version=7.8.0
cache="${XDG_CACHE_HOME:-$HOME/.cache}/docward"
environment="$cache/node-driver-$version"
modules="$environment/node_modules"

fail() {
    printf 'node-driver.sh: %s\n' "$@" >&2
    exit 1
}

type -P node >/dev/null || fail "node 20.19 or newer is needed for MongoDB's driver, and there is none on the PATH"
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' ||
    fail "node 20.19 or newer is needed for MongoDB's driver, this is $(node --version)"

if [[ -d "$modules/mongodb" ]]; then
    echo "$modules"
    exit
fi
type -P npm >/dev/null || fail "npm is needed to install MongoDB's driver, and there is none on the PATH"

mkdir -p "$cache"
scratch=$(mktemp -d "$cache/node-driver.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "node-driver.sh: installing mongodb $version for Node (once)" >&2
mkdir -p "$scratch/environment"
npm install --prefix "$scratch/environment" --omit=optional --ignore-scripts --no-audit --no-fund \
    --loglevel=error --no-update-notifier "mongodb@$version" >&2 ||
    fail "npm could not install mongodb@$version, see above"
chmod 755 "$scratch/environment"

mv -T "$scratch/environment" "$environment" 2>/dev/null || [[ -d "$modules/mongodb" ]] ||
    fail "cannot move the driver to $environment"
echo "$modules"
