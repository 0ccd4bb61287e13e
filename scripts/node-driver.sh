#!/usr/bin/env bash
# Prints the node_modules folder that holds MongoDB's driver for Node in a fixed version.
set -euo pipefail
version=7.8.0
exec "$(dirname "$0")/node-modules.sh" "node-driver-$version" 20.19 "mongodb@$version"
