#!/usr/bin/env bash
# Builds prometheus and promtool once into the user's cache folder, and prints the path of their folder. They are built
# without the discovery of targets in clouds, which is most of their code.
set -euo pipefail
source "$(dirname "$0")/fetching.bash"

version=0.316.0 # of the Go module: Prometheus 3.16.0
least=1.26.7
folder="$cache/prometheus-$version"

if [[ -x "$folder/prometheus" && -x "$folder/promtool" ]]; then
    echo "$folder"
    exit
fi
export GOTOOLCHAIN=local
type -P go >/dev/null || fail "go $least or newer is needed to build Prometheus, and there is none on the PATH"
present=$(go env GOVERSION)
is_at_least "$least" "${present#go}" || fail "go $least or newer is needed to build Prometheus, this is $present"

begin prometheus
report "building Prometheus $version (some minutes, once)"
module=github.com/prometheus/prometheus
GOBIN="$scratch/bin" go install -tags remove_all_sd "$module/cmd/prometheus@v$version" "$module/cmd/promtool@v$version" >&2
keep "$scratch/bin" "$folder"
echo "$folder"
