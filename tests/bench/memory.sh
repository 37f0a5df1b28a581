#!/usr/bin/env bash
# What one export takes of a worker's memory, whatever its number of rows: the most that the
# worker ever held (VmHWM) minus what it held before.
#
#   tests/bench/memory.sh [ROWS…]      default 1000000 5000000
#
# Linux alone. The file goes to a local folder; 5,000,000 rows take about 2 GB in all.
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
sizes=("$@")
[[ $# -gt 0 ]] || sizes=(1000000 5000000)

set_stage "${sizes[-1]}"
start api "$port"
held() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/${pid[worker]}/status"; }

for rows in "${sizes[@]}"; do
    ((rows <= sizes[-1])) || { say 'the largest number of rows must be the last'; exit 1; }
    # A fresh process for each, or the second would start with what the first left.
    start worker $((port + 1))
    sleep 2
    idle=$(held VmRSS)
    say "exporting $rows rows"
    job=$(call "$api/v1/exports" -d '{"resource": "order", "filters": {"id": {"operator": "LTE", "value": '"$rows"'}}}' | jq -r .exportJobId)
    while :; do
        answer=$(call "$api/v1/exports/$job")
        case $(jq -r .status <<<"$answer") in
        COMPLETED) break ;;
        FAILED | CANCELED) say "$answer"; exit 1 ;;
        esac
        sleep 0.2
    done
    most=$(held VmHWM)
    stop worker
    took=$(sql "$(database "$state")" -c "SELECT finished_at - started_at FROM jobs WHERE id = '$job'")
    jq -c --argjson idle "$idle" --argjson most "$most" --argjson took "$took" --argjson rows "$rows" '
        {rows: .totalRows, megabytes: (.sizeBytes / 1e6 | round), seconds: ($took / 1000),
         megabytesPerSecond: (.sizeBytes / 1e3 / $took | round),
         idleMiB: ($idle / 1024 | round), mostMiB: ($most / 1024 | round),
         addedMiB: (($most - $idle) / 1024 | round)}
        | if .rows == $rows then . else error("the file has \(.rows) rows instead of \($rows)") end' <<<"$answer"
    call -X DELETE "$api/v1/exports/$job" >/dev/null
done
