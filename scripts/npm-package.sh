#!/usr/bin/env bash
# npm-package.sh PACKAGE VERSION NODE: prints the node_modules folder with this version of an npm package, installed
# once into the user's cache folder. NODE is the minimum node version (20.19). Only the path goes to stdout. Parallel
# calls are safe.
set -euo pipefail
source "$(dirname "$0")/fetching.bash"

package=$1 version=$2 least=$3
environment="$cache/npm-$package-$version"

needs_node "$least" "$package"

if [[ -d "$environment" ]]; then
    echo "$environment/node_modules"
    exit
fi

begin "npm-$package"
report "installing $package $version (once)"
mkdir "$scratch/environment"
npm_install "$scratch/environment" "$package@$version"
keep "$scratch/environment" "$environment"
echo "$environment/node_modules"
