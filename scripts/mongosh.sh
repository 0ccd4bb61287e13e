#!/usr/bin/env bash
# Prints the path of a mongosh of a fixed version, installed once from npm.
set -euo pipefail

modules=$("$(dirname "$0")/npm-package.sh" mongosh 2.12.0 20.0)
echo "$modules/.bin/mongosh"
