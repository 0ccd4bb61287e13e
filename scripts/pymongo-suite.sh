#!/usr/bin/env bash
# Prints the folder of pymongo's own test suite, in the version of tests/python/requirements.txt: unpacked once from
# the source distribution into the user's cache folder. Only the path goes to stdout. Parallel calls are safe.
set -euo pipefail
source "$(dirname "$0")/fetching.bash"

root=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/^pymongo==//p' "$root/tests/python/requirements.txt")
suite="$cache/pymongo-suite-$version"

if [[ -d "$suite" ]]; then
    echo "$suite"
    exit
fi
[[ -n "$version" ]] || fail "tests/python/requirements.txt names no version of pymongo"
needs_pip

begin pymongo-suite

report "fetching the source of pymongo $version (about 3 MB, once)"
pip_download "$scratch" --no-binary pymongo "pymongo==$version" ||
    fail "pip could not download pymongo==$version, see above"

# Only the tests and their settings, without the package beside them: the suite must test the installed pymongo with
# its C extensions.
mkdir "$scratch/suite"
tar -xzf "$scratch/pymongo-$version.tar.gz" -C "$scratch/suite" --strip-components 1 \
    "pymongo-$version/test" "pymongo-$version/pyproject.toml" ||
    fail "the source of pymongo $version has no test folder or no pyproject.toml"

keep "$scratch/suite" "$suite"
echo "$suite"
