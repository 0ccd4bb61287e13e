#!/usr/bin/env bash
# Prints the path of a Chromium: $CHROMIUM, or one on the PATH, or Debian's, which root installs. Exits with 3 if none
# is found or installable. Only the path goes to stdout. Parallel calls are safe.
set -euo pipefail

find_one() {
    for candidate in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
        [[ -n "$candidate" ]] && type -P "$candidate" && return
    done
    return 1
}

find_one && exit
if ! type -P apt-get >/dev/null || [[ $EUID -ne 0 ]]; then
    echo "chromium.sh: there is no Chromium on the PATH, and only root can install Debian's" >&2
    exit 3
fi

cache="${XDG_CACHE_HOME:-$HOME/.cache}/docward"
mkdir -p "$cache"
exec 9>"$cache/chromium.lock"
flock 9
find_one && exit
echo "chromium.sh: installing Debian's chromium (once)" >&2
export DEBIAN_FRONTEND=noninteractive
{
    apt-get -q update
    apt-get -qy install --no-install-recommends chromium
} >&2 9>&-
type -P chromium
