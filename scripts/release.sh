#!/usr/bin/env bash
# Builds docward as it is released, and prints the binary's path: built twice, the second time with what the first one
# counted while the traffic of bench/training went through it. That takes twice as long as `cargo build --release`, and gives
# a binary that is smaller and takes less CPU. The triple of a target that this machine can run may be given.
set -euo pipefail
cd "$(dirname "$0")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
triple=${1:-$host}
target="$(scripts/target-folder.sh)/release-build"

# Of the compiler's own version: others cannot read what it counts.
llvm="$(rustc --print target-libdir --target "$host")/../bin"
[[ -x "$llvm/llvm-profdata" ]] || rustup component add llvm-tools >&2

# Flags name the target, so that they are not for build scripts.
build() {
    RUSTFLAGS="${RUSTFLAGS:-} $1" CARGO_TARGET_DIR="$2" \
        cargo build --release --locked --target "$triple" --bin docward >&2
}

counts="$target/counts"
counting="$target/counting/$triple/release/docward"
profile="$target/$triple.profdata"
build "-Cprofile-generate=$counts" "$target/counting"
# Another profile has all compiled anew, so it is made only when the code or the traffic is another.
traffic=(bench/*.rs bench/compare bench/shell bench/training rules)
if [[ ! -e "$profile" || -n $(find "$counting" "${traffic[@]}" -newer "$profile" -print -quit) ]]; then
    rm -rf "$counts"
    CARGO_TARGET_DIR="$target/training" cargo run --quiet --locked --manifest-path bench/training/Cargo.toml -- \
        "$counting" >&2
    # Whole or not at all: the next call would take what is there.
    "$llvm/llvm-profdata" merge -o "$profile.new" "$counts"
    mv "$profile.new" "$profile"
fi
build "-Cprofile-use=$profile" "$target/final"
echo "$target/final/$triple/release/docward"
