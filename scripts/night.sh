#!/usr/bin/env bash
# `make night`: the tests that need hours or measure, one after the other. A failure does not stop the others; the
# summary at the end has the result and the end of the log of each. NIGHT="chaos soak" runs only these. The variables of
# the targets apply (DOCWARD_ATTACK_SECONDS, DOCWARD_INVARIANTS_SECONDS, DOCWARD_SOAK_SECONDS, …).
set -euo pipefail
cd "$(dirname "$0")/.."

logs="$(scripts/target-folder.sh)/night"
mkdir -p "$logs"
trap "exit 130" INT TERM
summary=()
failed=0
for target in ${NIGHT:-deny attack chaos invariants drivers odm compat soak}; do
    echo "night.sh: $target, log in $logs/$target.log"
    SECONDS=0
    result=passed
    "${MAKE:-make}" --no-print-directory "$target" >"$logs/$target.log" 2>&1 || { result=FAILED && failed=1; }
    summary+=("$(printf '%-11s %-7s %4d min' "$target" "$result" $((SECONDS / 60)))")
    [[ $result == passed ]] || tail -n 30 "$logs/$target.log"
done
printf '\n'
printf '%s\n' "${summary[@]}"
exit "$failed"
