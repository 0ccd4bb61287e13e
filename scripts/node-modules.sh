#!/usr/bin/env bash
# node-modules.sh NAME MINIMUM PACKAGE@VERSION...: prints a node_modules folder that holds these
# packages, installed once from npm into the user's cache folder under NAME, which says their
# versions. MINIMUM is the oldest Node that runs them, such as 20.19. Only the path goes to
# stdout. Parallel calls are safe.
set -euo pipefail

name=$1 minimum=$2
shift 2
cache="${XDG_CACHE_HOME:-$HOME/.cache}/docward"
environment="$cache/$name"
modules="$environment/node_modules"

fail() {
    printf 'node-modules.sh: %s\n' "$@" >&2
    exit 1
}

type -P node >/dev/null || fail "node $minimum or newer is needed for $name, and there is none on the PATH"
node -e '
    const [wanted, found] = [process.argv[1], process.versions.node].map((version) => version.split(".").map(Number));
    process.exit(found[0] > wanted[0] || (found[0] === wanted[0] && found[1] >= (wanted[1] ?? 0)) ? 0 : 1);
' "$minimum" || fail "node $minimum or newer is needed for $name, this is $(node --version)"

if [[ -d "$modules" ]]; then
    echo "$modules"
    exit
fi
type -P npm >/dev/null || fail "npm is needed to install $name, and there is none on the PATH"

mkdir -p "$cache"
scratch=$(mktemp -d "$cache/$name.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Optional packages are native add-ons (Kerberos, client-side encryption) which the tests do
# not use; without them nothing is compiled or run at installation.
echo "node-modules.sh: installing $* (once)" >&2
mkdir -p "$scratch/environment"
npm install --prefix "$scratch/environment" --omit=optional --ignore-scripts --no-audit --no-fund \
    --loglevel=error --no-update-notifier "$@" >&2 ||
    fail "npm could not install $*, see above"
chmod 755 "$scratch/environment"

mv -T "$scratch/environment" "$environment" 2>/dev/null || [[ -d "$modules" ]] ||
    fail "cannot move $name to $environment"
echo "$modules"
