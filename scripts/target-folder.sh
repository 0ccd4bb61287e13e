#!/usr/bin/env bash
# Prints the folder cargo builds into, wherever the user's settings put it.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo metadata --no-deps --format-version 1 --offline | sed -E 's/.*"target_directory":"([^"]*)".*/\1/'
