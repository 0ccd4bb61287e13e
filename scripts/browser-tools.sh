#!/usr/bin/env bash
# Prints the node_modules folder that holds what drives a browser (playwright-core) and what
# looks for barriers in a page (axe-core), in fixed versions.
set -euo pipefail
playwright=1.65.1 axe=4.14.1
exec "$(dirname "$0")/node-modules.sh" "browser-tools-$playwright-$axe" 20 "playwright-core@$playwright" "axe-core@$axe"
