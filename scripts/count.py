#!/usr/bin/env python3
"""`make count`: lines of Rust outside tests for each crate, of tests and of scripts, and words of the documentation."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).parent.parent
TEST_MODULE = re.compile(r"^#\[cfg\(test\)\]\n(pub(\(.*\))? )?mod \w+ \{", re.MULTILINE)


def tracked(pattern):
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", pattern], capture_output=True, text=True, check=True)
    return {name: (ROOT / name).read_text() for name in listed.stdout.split()}


def show(title, count):
    print(f"{count:8,}  {title}")


def lines(texts):
    return sum(text.count("\n") for text in texts)


rust = tracked("*.rs")
# A file of `src` counts up to its tests.
product = {
    name: TEST_MODULE.split(text)[0]
    for name, text in rust.items()
    if "src" in name.split("/")[:-1] and not re.search(r"(^|/)tests?(/|\.rs$)", name) and not name.startswith("bench/")
}
crates = sorted({name.partition("src/")[0] for name in product})
for crate in crates:
    show(f"lines of {crate}src", lines(text for name, text in product.items() if name.startswith(f"{crate}src/")))
show("lines of src outside tests", lines(product.values()))
show("lines of other Rust: tests, benches, fuzz targets", lines(rust.values()) - lines(product.values()))
show("lines of Python and shell scripts", lines([*tracked("*.py").values(), *tracked("scripts/*.sh").values()]))

pages = tracked("docs/*.md")
generated = {name for name in pages if name.startswith("docs/reference/")}
show("words of docs, by hand", sum(len(text.split()) for name, text in pages.items() if name not in generated))
show("words of docs/reference, generated", sum(len(pages[name].split()) for name in generated))
