#!/usr/bin/env bash
# Whether a row of a large export takes as long as one of a small export: PostgreSQL as CSV, tables
# of several sizes in turns. A line for each size, and one with the slowest row by the fastest.
#
#   tests/bench/slope.sh [ROUNDS [ROWS…]]      default 3 1000000 5000000 20000000
#
# The time is the worker's own, as in export.sh, without the first export of each turn: what a new
# process and a machine that took back memory pay once is not the rows' time. Smaller ones come up
# to five times a turn. Beside it, what the worker itself computes, which other work disturbs less.
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
start worker $((port + 1))
most=$(printf '%s\n' "${sizes[@]}" | sort -n | tail -n 1)
for round in $(seq "$rounds"); do
    for rows in "${sizes[@]}"; do
        times=$((most / rows < 5 ? most / rows : 5))
        for again in $(seq 0 "$times"); do
            before=$(processors "${pid[worker]}")
            export_rows "$rows" '{"resource": "order'"$rows"'"}'
            after=$(processors "${pid[worker]}")
            forget_file
            ((again > 0)) || continue
            jq -nc --argjson rows "$rows" --argjson seconds "$took" --argjson processors "[$before, $after]" \
                '$ARGS.named | .processors = .processors[1] - .processors[0]' | tee -a "$folder/figures" >&2
        done
    done
done
jq -sc '
    def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
    [group_by(.rows)[] | {rows: .[0].rows, exports: length, seconds: (map(.seconds) | median), processors: (map(.processors) | median)}
        | . + {microsecondsPerRow: (.seconds * 1e9 / .rows | round / 1000), computedPerRow: (.processors * 1e9 / .rows | round / 1000)}]
    | .[], {slowestByFastest: ((map(.microsecondsPerRow) | max / min) * 1000 | round / 1000)}' "$folder/figures"
