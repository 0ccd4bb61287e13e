#!/usr/bin/env bash
# `make dist`: packs docward for machines without a compiler into dist/: a tarball, a Debian package, a container image,
# a Python wheel and an npm package, all with the same static binary; checksums and an SBOM (CycloneDX). It publishes
# nothing. DIST_BINARY is a static binary that was built already.
set -euo pipefail
cd "$(dirname "$0")/.."

triple="$(uname -m)-unknown-linux-musl"
if [[ -z "${DIST_BINARY:-}" ]]; then
    rustup target add "$triple" >&2
    type -P musl-gcc >/dev/null || {
        echo "make dist: there is no musl-gcc; on Debian and Ubuntu: apt-get install musl-tools" >&2
        exit 1
    }
    DIST_BINARY=$(scripts/release.sh "$triple")
fi
type -P cargo-cyclonedx >/dev/null || cargo install --locked cargo-cyclonedx@0.5.7 >&2

rm -rf dist
mkdir -p dist/stage
stage=$PWD/dist/stage
install -D "$DIST_BINARY" "$stage/docward"
"$stage/docward" man --out "$stage/man"
mkdir "$stage/completions"
for shell in bash zsh fish; do
    "$stage/docward" completions "$shell" >"$stage/completions/$shell"
done
mkdir "$stage/schema"
"$stage/docward" schema >"$stage/schema/docward.schema.json"
"$stage/docward" schema --config >"$stage/schema/docward-config.schema.json"

cargo cyclonedx --format json --target "$triple" --override-filename docward-sbom --quiet
version=$("$stage/docward" --version | cut -d' ' -f2)
mv docward-sbom.json "dist/docward-$version.cdx.json"

python3 scripts/dist/pack.py "$stage" dist "$version" "$(uname -m)"
DEB_BINARY="$stage/docward" scripts/deb.sh --output "dist/" >&2

rm -rf "$stage"
(cd dist && sha256sum -- * >SHA256SUMS)
ls -l dist
