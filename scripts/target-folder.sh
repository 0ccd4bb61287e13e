#!/usr/bin/env bash
# Prints cargo's target folder according to the user's settings.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo metadata --no-deps --format-version 1 --offline | sed -E 's/.*"target_directory":"([^"]*)".*/\1/'
