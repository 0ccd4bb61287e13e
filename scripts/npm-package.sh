#!/usr/bin/env bash
# npm-package.sh PACKAGE VERSION NODE: prints the node_modules folder that holds this version of an npm package,
# installed once into the user's cache folder; NODE is the least version of node it needs (20.19). Only the path goes
# to stdout. Parallel calls are safe.
set -euo pipefail
source "$(dirname "$0")/fetching.bash"

package=$1 version=$2 least=$3
environment="$cache/npm-$package-$version"

type -P node >/dev/null || fail "node $least or newer is needed for $package, and there is none on the PATH"
present=$(node --version)
is_at_least "$least" "${present#v}" || fail "node $least or newer is needed for $package, this is $present"

if [[ -d "$environment" ]]; then
    echo "$environment/node_modules"
    exit
fi
type -P npm >/dev/null || fail "npm is needed to install $package, and there is none on the PATH"

begin "npm-$package"

# The optional packages are native add-ons (Kerberos, client-side encryption) which
# the tests do not use; without them nothing is compiled or run at installation.
say "installing $package $version (once)"
mkdir "$scratch/environment"
npm install --prefix "$scratch/environment" --omit=optional --ignore-scripts --no-audit --no-fund \
    --loglevel=error --no-update-notifier "$package@$version" >&2 ||
    fail "npm could not install $package@$version, see above"
keep "$scratch/environment" "$environment"
echo "$environment/node_modules"
