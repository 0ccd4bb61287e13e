#!/usr/bin/env bash
# npm-package.sh PACKAGE VERSION NODE: prints the node_modules folder that holds this version of an npm package,
# installed once into the user's cache folder; NODE is the least version of node it needs (20.19). Only the path goes
# to stdout. Parallel calls are safe.
set -euo pipefail

package=$1 version=$2 least=$3
cache="${XDG_CACHE_HOME:-$HOME/.cache}/docward"
environment="$cache/npm-$package-$version"

fail() {
    printf 'npm-package.sh: %s\n' "$@" >&2
    exit 1
}

type -P node >/dev/null || fail "node $least or newer is needed for $package, and there is none on the PATH"
present=$(node --version)
[[ $(printf '%s\n' "$least" "${present#v}" | sort --version-sort | head -n 1) == "$least" ]] ||
    fail "node $least or newer is needed for $package, this is $present"

if [[ -d "$environment" ]]; then
    echo "$environment/node_modules"
    exit
fi
type -P npm >/dev/null || fail "npm is needed to install $package, and there is none on the PATH"

mkdir -p "$cache"
scratch=$(mktemp -d "$cache/npm-$package.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The optional packages are native add-ons (Kerberos, client-side encryption) which
# the tests do not use; without them nothing is compiled or run at installation.
echo "npm-package.sh: installing $package $version (once)" >&2
mkdir "$scratch/environment"
npm install --prefix "$scratch/environment" --omit=optional --ignore-scripts --no-audit --no-fund \
    --loglevel=error --no-update-notifier "$package@$version" >&2 ||
    fail "npm could not install $package@$version, see above"
chmod 755 "$scratch/environment"

# The rename is atomic. Whoever comes second finds a whole folder there and uses that.
mv -T "$scratch/environment" "$environment" 2>/dev/null || [[ -d "$environment" ]] ||
    fail "cannot move $package to $environment"
echo "$environment/node_modules"
