#!/usr/bin/env bash
# Prints the node_modules folder for tests/odm/node/package.json, installed from npm once per change of that file.
set -euo pipefail
source "$(dirname "$0")/fetching.bash"

packages="$(dirname "$0")/../tests/odm/node/package.json"
environment="$cache/npm-odm-$(sha256sum "$packages" | cut -c1-12)"

needs_node 20.19 "the ODMs"
if [[ -d "$environment" ]]; then
    echo "$environment/node_modules"
    exit
fi

begin npm-odm
report "installing the ODMs for Node (once)"
mkdir "$scratch/environment"
cp "$packages" "$scratch/environment"
npm_install "$scratch/environment"
keep "$scratch/environment" "$environment"
echo "$environment/node_modules"
