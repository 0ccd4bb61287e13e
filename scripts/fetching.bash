# Functions for scripts that download test and benchmark dependencies once into the user's cache folder. The scripts
# print only their result to stdout.

cache="${XDG_CACHE_HOME:-$HOME/.cache}/docward"

report() { printf "${0##*/}: %s\n" "$@" >&2; }

fail() {
    report "$@"
    exit 1
}

# Status 77: unavailable here; callers continue without it.
skip() {
    report "$@"
    exit 77
}

# is_at_least LEAST PRESENT: whether version PRESENT is LEAST or newer.
is_at_least() { [[ $(printf '%s\n' "$1" "$2" | sort --version-sort | head -n 1) == "$1" ]]; }

# needs_pip [HINT]
needs_pip() {
    python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip (on Debian: apt-get install python3-pip)" "$@"
}

# pip_download FOLDER ARGUMENT...: one file, without its dependencies.
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

# npm_install FOLDER [PACKAGE@VERSION...]: the named packages, or those of the folder's package.json.
#
# The optional packages are native add-ons (Kerberos, client-side encryption) that the tests do not use; without them
# the installation compiles and runs nothing.
npm_install() {
    local folder=$1
    shift
    type -P npm >/dev/null || fail "npm is needed to install ${*:-packages}, and there is none on the PATH"
    npm install --prefix "$folder" --omit=optional --ignore-scripts --no-audit --no-fund \
        --loglevel=error --no-update-notifier "$@" >&2 ||
        fail "npm could not install ${*:-what $folder/package.json names}, see above"
}

# cargo_program NAME VERSION [OPTION...]: the path of a program of crates.io, installed into the cache folder once.
cargo_program() {
    local kept="$cache/$1-$2"
    if [[ ! -x "$kept/bin/$1" ]]; then
        begin "$1"
        cargo install --locked --root "$scratch/$1" "${@:3}" "$1@$2" >&2 ||
            fail "cargo could not install $1 $2, see above"
        keep "$scratch/$1" "$kept"
    fi
    echo "$kept/bin/$1"
}

# begin NAME: a folder in the cache, `scratch`, which is removed when the script ends for any reason.
begin() {
    mkdir -p "$cache"
    scratch=$(mktemp -d "$cache/$1.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# keep FOLDER TARGET: moves a complete folder to its final place. The rename is atomic; a parallel call that is second
# uses the existing folder.
keep() {
    chmod 755 "$1"
    mv -T "$1" "$2" 2>/dev/null || [[ -d "$2" ]] || fail "cannot move what was fetched to $2"
}
