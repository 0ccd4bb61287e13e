#!/usr/bin/env bash
# Prints the path of a Chromium: $CHROMIUM, or one on the PATH, or Debian's, which is installed
# where this is allowed. Exits with 3 when there is none and none can be had.
set -euo pipefail

for candidate in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
    if [[ -n "$candidate" ]] && type -P "$candidate"; then
        exit
    fi
done
if ! type -P apt-get >/dev/null || [[ $EUID -ne 0 ]]; then
    echo "chromium.sh: there is no Chromium on the PATH, and only root can install Debian's" >&2
    exit 3
fi

echo "chromium.sh: installing Debian's chromium (once)" >&2
export DEBIAN_FRONTEND=noninteractive
# Parallel calls wait for each other.
{
    apt-get -o DPkg::Lock::Timeout=300 update -q
    apt-get -o DPkg::Lock::Timeout=300 install -qy --no-install-recommends chromium
} >&2
type -P chromium
