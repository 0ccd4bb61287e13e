#!/usr/bin/env bash
# `make book`: the documentation as a book with search; prints its first page. Its source is a copy of all files that
# pages link to, so that the links work. Installs mdBook once.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/fetching.bash

mdbook=$(cargo_program mdbook 0.5.4 --no-default-features --features search)

target=$(scripts/target-folder.sh)
pages="$target/book-source"
rm -rf "$pages"
mkdir -p "$pages/bench"
cp -r docs rules deploy ./*.md LICENSE Dockerfile docs/book.toml "$pages"
cp -r bench/RESULTS.md bench/plots "$pages/bench"
# The list of pages is beside each page of the book, and is no page itself. The first page is index.html.
sed 's|docs/SUMMARY.md|docs/quick-start.md|g' README.md >"$pages/index.md"
sed -i 's|(\.\./README\.md|(../index.md|g' "$pages"/docs/*.md
{
    echo '[docward](index.md)'
    sed '1d; s|](\(.\)|](docs/\1|; s|(docs/)|()|' docs/SUMMARY.md
    for page in SECURITY CHANGELOG CONTRIBUTING ARCHITECTURE bench/RESULTS; do
        echo "- [$(sed -n '1s/^# //p' "$page.md")]($page.md)"
    done
} >"$pages/SUMMARY.md"
"$mdbook" build "$pages" --dest-dir "$target/book" >&2
echo "$target/book/index.html"
