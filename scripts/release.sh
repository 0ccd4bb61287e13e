#!/usr/bin/env bash
# Builds docward for a release, and prints the binary's path: built twice, the second time with the profile of the
# first one under the traffic of bench/training. That takes twice as long as `cargo build --release`, and gives a
# smaller binary that uses less CPU. An optional argument is the triple of a target that this machine can run.
set -euo pipefail
cd "$(dirname "$0")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
triple=${1:-$host}
target="$(scripts/target-folder.sh)/release-build"

# From the compiler's own version, because others cannot read its profile.
llvm="$(rustc --print target-libdir --target "$host")/../bin"
[[ -x "$llvm/llvm-profdata" ]] || rustup component add llvm-tools >&2

# The flags name the target, so that they do not apply to build scripts.
build() {
    RUSTFLAGS="${RUSTFLAGS:-} $1" CARGO_TARGET_DIR="$2" \
        cargo build --release --locked --target "$triple" --bin docward >&2
}

counts="$target/counts"
counting="$target/counting/$triple/release/docward"
profile="$target/$triple.profdata"
# Without optimisation across crates, which counts the same.
build "-Cprofile-generate=$counts -Clto=off -Clinker-plugin-lto=no" "$target/counting"
# A new profile rebuilds everything, so it is made only after a change of the code or the traffic.
traffic=(bench/*.rs bench/compare bench/shell bench/training rules)
if [[ ! -e "$profile" || -n $(find "$counting" "${traffic[@]}" -newer "$profile" -print -quit) ]]; then
    rm -rf "$counts"
    CARGO_TARGET_DIR="$target/training" cargo run --quiet --locked --manifest-path bench/training/Cargo.toml -- \
        "$counting" >&2
    # Moved atomically: the next call would use an incomplete file.
    "$llvm/llvm-profdata" merge -o "$profile.new" "$counts"
    mv "$profile.new" "$profile"
fi
build "-Cprofile-use=$profile" "$target/final"
echo "$target/final/$triple/release/docward"
