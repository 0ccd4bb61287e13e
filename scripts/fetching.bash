# Sourced by scripts that fetch once, into the user's cache folder, what tests and benchmarks need. What they are asked for is
# all that goes to their stdout.

cache="${XDG_CACHE_HOME:-$HOME/.cache}/docward"

say() { printf "${0##*/}: %s\n" "$@" >&2; }

fail() {
    say "$@"
    exit 1
}

# Status 77: it cannot be had here, and those who ask go on without it.
skip() {
    say "$@"
    exit 77
}

# is_at_least LEAST PRESENT: whether a version is no older than another.
is_at_least() { [[ $(printf '%s\n' "$1" "$2" | sort --version-sort | head -n 1) == "$1" ]]; }

# needs_pip [HINT]
needs_pip() {
    python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip (on Debian: apt-get install python3-pip)" "$@"
}

# pip_download FOLDER ARGUMENT...: one file, without what it depends on.
pip_download() {
    PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip download --quiet --no-deps --no-cache-dir --dest "$@" >&2
}

# needs_node LEAST WHAT: node in this version or a newer one.
needs_node() {
    local present
    type -P node >/dev/null || fail "node $1 or newer is needed for $2, and there is none on the PATH"
    present=$(node --version)
    is_at_least "$1" "${present#v}" || fail "node $1 or newer is needed for $2, this is $present"
}

# npm_install FOLDER [PACKAGE@VERSION...]: what is named, or what the folder's package.json names.
#
# The optional packages are native add-ons (Kerberos, client-side encryption) which
# the tests do not use; without them nothing is compiled or run at installation.
npm_install() {
    local folder=$1
    shift
    type -P npm >/dev/null || fail "npm is needed to install ${*:-packages}, and there is none on the PATH"
    npm install --prefix "$folder" --omit=optional --ignore-scripts --no-audit --no-fund \
        --loglevel=error --no-update-notifier "$@" >&2 ||
        fail "npm could not install ${*:-what $folder/package.json names}, see above"
}

# begin NAME: a folder in the cache, `scratch`, that is gone in the end, whatever ends the script.
begin() {
    mkdir -p "$cache"
    scratch=$(mktemp -d "$cache/$1.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# keep FOLDER TARGET: moves a whole folder to where it stays. The rename is atomic; who comes second uses what is there.
keep() {
    chmod 755 "$1"
    mv -T "$1" "$2" 2>/dev/null || [[ -d "$2" ]] || fail "cannot move what was fetched to $2"
}
