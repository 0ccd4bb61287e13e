#!/usr/bin/env bash
# Prints the node_modules folders, in the form of NODE_PATH, with playwright-core, which controls browsers, and
# axe-core, which checks accessibility. Both have fixed versions and are installed once from npm.
set -euo pipefail

folder=$(dirname "$0")
driver=$("$folder/npm-package.sh" playwright-core 1.65.1 20.0)
barriers=$("$folder/npm-package.sh" axe-core 4.14.1 20.0)
echo "$driver:$barriers"
