#!/usr/bin/env bash
# Prints the folder of pymongo's own test suite, of the version that
# tests/python/requirements.txt names: unpacked once from the source distribution, which
# carries it, into the user's cache folder. Only the path goes to stdout. Parallel calls
# are safe.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/^pymongo==//p' "$root/tests/python/requirements.txt")
cache="${XDG_CACHE_HOME:-$HOME/.cache}/docward"
suite="$cache/pymongo-suite-$version"

fail() {
    printf 'pymongo-suite.sh: %s\n' "$@" >&2
    exit 1
}

if [[ -d "$suite" ]]; then
    echo "$suite"
    exit
fi
[[ -n "$version" ]] || fail "tests/python/requirements.txt names no version of pymongo"
python3 -m pip --version >/dev/null 2>&1 ||
    fail "python3 has no pip (on Debian: apt-get install python3-pip)"

mkdir -p "$cache"
scratch=$(mktemp -d "$cache/pymongo-suite.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "pymongo-suite.sh: fetching the source of pymongo $version (about 3 MB, once)" >&2
PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip download --quiet --no-deps --no-cache-dir \
    --no-binary pymongo --dest "$scratch" "pymongo==$version" >&2 ||
    fail "pip could not download pymongo==$version, see above"

# The tests and their settings, without the package beside them: the suite is to test the
# pymongo that is installed, with its C extensions.
mkdir "$scratch/suite"
tar -xzf "$scratch/pymongo-$version.tar.gz" -C "$scratch/suite" --strip-components 1 \
    "pymongo-$version/test" "pymongo-$version/pyproject.toml" ||
    fail "the source of pymongo $version has no test folder or no pyproject.toml"
chmod 755 "$scratch/suite"

mv -T "$scratch/suite" "$suite" 2>/dev/null || [[ -d "$suite" ]] ||
    fail "cannot move the suite to $suite"
echo "$suite"
