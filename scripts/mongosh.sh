#!/usr/bin/env bash
# Prints the path of a mongosh of a fixed version, installed once from npm into the
# user's cache folder. Only the path goes to stdout. Parallel calls are safe.
set -euo pipefail

version=2.12.0
cache="${XDG_CACHE_HOME:-$HOME/.cache}/docward"
environment="$cache/mongosh-$version"
mongosh="$environment/node_modules/.bin/mongosh"

fail() {
    printf 'mongosh.sh: %s\n' "$@" >&2
    exit 1
}

type -P node >/dev/null || fail "node 20 or newer is needed for mongosh, and there is none on the PATH"
node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)' ||
    fail "node 20 or newer is needed for mongosh, this is $(node --version)"

if [[ -x "$mongosh" ]]; then
    echo "$mongosh"
    exit
fi
type -P npm >/dev/null || fail "npm is needed to install mongosh, and there is none on the PATH"

mkdir -p "$cache"
scratch=$(mktemp -d "$cache/mongosh.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The optional packages are native add-ons (Kerberos, client-side encryption) which
# the tests do not use; without them nothing is compiled or run at installation.
echo "mongosh.sh: installing mongosh $version (once)" >&2
mkdir -p "$scratch/environment"
npm install --prefix "$scratch/environment" --omit=optional --ignore-scripts --no-audit --no-fund \
    --loglevel=error --no-update-notifier "mongosh@$version" >&2 ||
    fail "npm could not install mongosh@$version, see above"
chmod 755 "$scratch/environment"
"$scratch/environment/node_modules/.bin/mongosh" --version >/dev/null ||
    fail "the installed mongosh does not start, see above"

mv -T "$scratch/environment" "$environment" 2>/dev/null || [[ -x "$mongosh" ]] ||
    fail "cannot move mongosh to $environment"
echo "$mongosh"
