#!/usr/bin/env bash
# Prints the node_modules folders, as NODE_PATH has them, that hold what drives a browser (playwright-core) and what
# finds barriers in a page (axe-core), each in a fixed version, installed once from npm.
set -euo pipefail

folder=$(dirname "$0")
driver=$("$folder/npm-package.sh" playwright-core 1.65.1 20.0)
barriers=$("$folder/npm-package.sh" axe-core 4.14.1 20.0)
echo "$driver:$barriers"
