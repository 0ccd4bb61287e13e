#!/usr/bin/env bash
# python-env.sh [REQUIREMENTS]: makes a Python environment with what tests/python needs, or with another file of
# requirements, once for every change of them or of python3, in the user's cache folder, and prints the path of
# its interpreter. Only the path goes to stdout. Parallel calls are safe.
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

# Without pip inside, the environment needs no ensurepip, which Debian packages
# separately; the pip outside installs into it. Nothing in it depends on its own path
# as long as modules are run with `python -m`, so it can be renamed when it is whole.
say "making a Python environment for the tests (once)"
python3 -m venv --without-pip "$scratch/environment" >&2 ||
    fail "python3 -m venv failed, see above (on Debian: apt-get install python3-venv)"
packages=$("$scratch/environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet \
    --only-binary :all: --target "$packages" --requirement "$requirements" >&2 ||
    fail "pip could not install $requirements, see above"

keep "$scratch/environment" "$environment"
echo "$python"
