#!/usr/bin/env bash
# java-scenario.sh [FOLDER]: compiles the scenario of MongoDB's driver for Java (tests/java), or another folder, whose
# libraries Maven stores in the user's cache folder, and prints the class path. Exits with 77 if Java or Maven is not
# installed, or Maven cannot download the libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/fetching.bash

least=17
sources=${1:-tests/java}
libraries="$cache/maven"

for tool in java javac mvn; do
    type -P "$tool" >/dev/null || skip "$tool is needed, and there is none on the PATH"
done
present=$(javac -version 2>&1)
is_at_least "$least" "${present#javac }" || skip "a JDK of version $least or newer is needed, this is $present"

classes="$(scripts/target-folder.sh)/drivers/${sources//\//-}"
# Maven is slow, so it runs only after a change of the dependencies.
path="$libraries/class-path-$(sha256sum "$sources/pom.xml" | cut -c1-12)"
mkdir -p "$libraries" "$classes"
if [[ ! -e "$path" ]]; then
    report "fetching the driver and what it needs (once)"
    scratch=$(mktemp "$path.XXXXXX")
    trap 'rm -f "$scratch"' EXIT
    mvn --quiet --batch-mode --file "$sources/pom.xml" -Dmaven.repo.local="$libraries" \
        dependency:build-classpath -Dmdep.outputFile="$scratch" >&2 || skip "Maven could not have the libraries of $sources, see above"
    mv "$scratch" "$path"
fi
javac -Xlint:all -Werror -d "$classes" -cp "$(<"$path")" "$sources"/*.java >&2
echo "$classes:$(<"$path")"
