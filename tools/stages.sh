#!/usr/bin/env bash
# Run the stages one after the other, go on after one that fails, end with a table of their times.
#
#     tools/stages.sh COMMAND... -- STAGE...        each stage is run as COMMAND... STAGE
set -u

command=()
while [ "$1" != -- ]; do
  command+=("$1")
  shift
done
shift

rows='' total=0 failed=0
for stage; do
  printf '\n===== %s\n' "$stage"
  SECONDS=0
  outcome=ok
  "${command[@]}" "$stage" || outcome=FAILED failed=1
  rows+=$(printf '%-12s %5d s  %s' "$stage" "$SECONDS" "$outcome")$'\n'
  total=$((total + SECONDS))
done

printf '\n===== times\n%s%-12s %5d s\n' "$rows" total "$total"
exit "$failed"
