#!/usr/bin/env bash
# Runs every fuzz target of fuzz/, or only the named ones, with coverage feedback for FUZZ_SECONDS each (default 600).
# Starts with the stored corpus and well-formed seeds; a finding ends the run and is stored in fuzz/artifacts. Needs a
# nightly compiler; installs cargo-fuzz if it is missing. FUZZ_KEEP=1 adds inputs with new coverage to the corpus,
# minimised.
set -euo pipefail
cd "$(dirname "$0")/.."

type -P cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
rustup toolchain list | grep -q nightly || rustup toolchain install nightly --profile minimal

FOUND="$(scripts/target-folder.sh)/fuzz"
export DOCWARD_FUZZ_SEEDS="$FOUND/seeds"
cargo test --quiet --test source fuzz_targets::every_target
export CARGO_TARGET_DIR="$FOUND/build"

targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cargo +nightly fuzz list)
for target in "${targets[@]}"; do
    mkdir -p "$FOUND/found/$target"
    echo "== $target, ${FUZZ_SECONDS:-600} s"
    # No sanitizer: docward has no unsafe code for it to check, and it is slow.
    cargo +nightly fuzz run --sanitizer none "$target" \
        "$FOUND/found/$target" "fuzz/corpus/$target" "$DOCWARD_FUZZ_SEEDS/$target" -- \
        -max_total_time="${FUZZ_SECONDS:-600}" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1
    if [ "${FUZZ_KEEP:-}" ]; then
        mkdir -p "$FOUND/kept/$target"
        cargo +nightly fuzz run --sanitizer none "$target" "$FOUND/kept/$target" \
            "fuzz/corpus/$target" "$FOUND/found/$target" -- -set_cover_merge=1 -use_counters=0 -max_len=2048
        rm -rf "fuzz/corpus/${target:?}"
        mv "$FOUND/kept/$target" "fuzz/corpus/$target"
    fi
done
