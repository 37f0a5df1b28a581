#!/usr/bin/env bash
# Whether a row of a large export takes as long as one of a small export: PostgreSQL as CSV, tables
# of several sizes in turns. A line for each size, and one with the slowest row by the fastest.
#
#   tests/bench/slope.sh [ROUNDS [ROWS…]]      default 3 1000000 5000000 20000000
#
# The time is the worker's own, as in export.sh, of the second of two exports: what a new process
# and a machine with untouched memory pay once is not the rows' time.
# 26,000,000 rows take about 12 GB while they are there.
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
rounds=${1:-3}
sizes=("${@:2}")
[[ ${#sizes[@]} -gt 0 ]] || sizes=(1000000 5000000 20000000)

room $(($(printf '%s\n' "${sizes[@]}" | awk '{ all += $1; if ($1 > most) most = $1 } END { print all * 300 + most * 220 }')))
set_stage 1
for rows in "${sizes[@]}"; do
    say "making a table of $rows rows"
    sql "$(url_of postgres)" -c "CREATE SCHEMA s$rows"
    PGOPTIONS="-c search_path=s$rows" sql -v rows="$rows" -f "$bench/orders.sql" "$(url_of postgres)"
    sed "s/^name = .*/name = \"order$rows\"/; s/^from = .*/from = \"s$rows.orders\"/" "$bench/order.toml" \
        >"$folder/resources/order$rows.toml"
done
start api "$port"
for round in $(seq "$rounds"); do
    for rows in "${sizes[@]}"; do
        start worker $((port + 1))
        for _ in first second; do
            export_rows "$rows" '{"resource": "order'"$rows"'"}'
            forget_file
        done
        stop worker
        jq -nc --argjson rows "$rows" --argjson seconds "$took" '$ARGS.named' | tee -a "$folder/figures" >&2
    done
done
jq -sc '
    def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
    [group_by(.rows)[] | {rows: .[0].rows, rounds: length, seconds: (map(.seconds) | median)}
        | . + {microsecondsPerRow: (.seconds * 1e9 / .rows | round / 1000)}]
    | .[], {slowestByFastest: ((map(.microsecondsPerRow) | max / min) * 1000 | round / 1000)}' "$folder/figures"
