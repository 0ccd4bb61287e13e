#!/usr/bin/env bash
# Builds helm once into the user's cache folder, and prints its path.
set -euo pipefail
source "$(dirname "$0")/fetching.bash"

version=3.22.0
least=1.26.0
folder="$cache/helm-$version"

if [[ ! -x "$folder/helm" ]]; then
    export GOTOOLCHAIN=local
    type -P go >/dev/null || fail "go $least or newer is needed to build helm, and there is none on the PATH"
    present=$(go env GOVERSION)
    is_at_least "$least" "${present#go}" || fail "go $least or newer is needed to build helm, this is $present"
    begin helm
    report "building helm $version (some minutes, once)"
    GOBIN="$scratch/bin" go install "helm.sh/helm/v3/cmd/helm@v$version" >&2
    keep "$scratch/bin" "$folder"
fi
echo "$folder/helm"
