#!/usr/bin/env bash
# Prints the path of a mongosh of a fixed version.
set -euo pipefail
version=2.12.0
modules=$("$(dirname "$0")/node-modules.sh" "mongosh-$version" 20 "mongosh@$version")
echo "$modules/.bin/mongosh"
