#!/usr/bin/env bash
# `make deb`: builds the release binary and packs it with its manual pages, completions, units and examples into
# a Debian package, whose path it prints. Arguments go to cargo-deb, which is installed if it is missing. DEB_BINARY is
# a binary that was built already.
set -euo pipefail
cd "$(dirname "$0")/.."

type -P cargo-deb >/dev/null || cargo install --locked cargo-deb@3.6.3 >&2

docward=${DEB_BINARY:-$(scripts/release.sh)}
# cargo-deb takes the binary from cargo's default folder.
install -D "$docward" "$(scripts/target-folder.sh)/release/docward"

# Cargo.toml reads these files from here.
generated=target/package
rm -rf "$generated"
mkdir -p "$generated/completions"
"$docward" man --out "$generated/man"
for shell in bash zsh fish; do
    "$docward" completions "$shell" >"$generated/completions/$shell"
done

# Debian requires a changelog in its own format.
version=$("$docward" --version | cut -d' ' -f2)
maintainer=$(sed -n 's/^maintainer = "\(.*\)"$/\1/p' Cargo.toml)
printf 'docward (%s-1) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(date --rfc-email --reference=CHANGELOG.md)" >"$generated/changelog"

cargo deb --locked --no-build "$@"
