#!/usr/bin/env bash
# python-env.sh [REQUIREMENTS]: creates a Python environment for tests/python, or for another requirements file, in
# the user's cache folder, once per change of the file or of python3, and prints the path of its interpreter. Only the
# path goes to stdout. Parallel calls are safe.
set -euo pipefail
source "$(dirname "$0")/fetching.bash"

root=$(cd "$(dirname "$0")/.." && pwd)
requirements="$root/${1:-tests/python/requirements.txt}"

type -P python3 >/dev/null || fail "python3 (3.9 or newer) is needed for the Python tests"
identity=$(python3 -c 'import sys; print(sys.version, sys.base_prefix)')
key=$({ echo "$identity"; cat "$requirements"; } | sha256sum | cut -c1-12)
environment="$cache/python-$key"
python="$environment/bin/python"

if [[ -x "$python" ]]; then
    echo "$python"
    exit
fi

needs_pip
begin python

# The environment has no pip, because ensurepip is a separate package in Debian; the pip outside installs into it. It
# does not depend on its own path as long as modules run with `python -m`, so it can be renamed when it is complete.
report "making a Python environment for the tests (once)"
python3 -m venv --without-pip "$scratch/environment" >&2 ||
    fail "python3 -m venv failed, see above (on Debian: apt-get install python3-venv)"
packages=$("$scratch/environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet \
    --only-binary :all: --target "$packages" --requirement "$requirements" >&2 ||
    fail "pip could not install $requirements, see above"

keep "$scratch/environment" "$environment"
echo "$python"
