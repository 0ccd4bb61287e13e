#!/usr/bin/env bash
# Prints the node_modules folder with MongoDB's driver for Node in a fixed version, installed once from npm.
set -euo pipefail

exec "$(dirname "$0")/npm-package.sh" mongodb 7.8.0 20.19
