#!/usr/bin/env bash
# What one export takes of a worker's memory, whatever its number of rows: the most that the
# worker ever held (VmHWM) minus what it held before (VmRSS). Fails beyond 64 MiB.
#
#   tests/bench/memory.sh [ROWS…]      default 1000000 5000000
#
# BENCH_SOURCES and BENCH_FORMATS say which; by default all of `postgres mariadb sqlite` and
# `CSV NDJSON PARQUET XLSX`. A workbook has no more than a million rows. The files go to a local
# folder, or with BENCH_STORE=s3 to a bucket that keeps nothing. Linux alone. 5,000,000 rows take
# about 6 GB in all.
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
sizes=("$@")
[[ $# -gt 0 ]] || sizes=(1000000 5000000)
read -ra sources <<<"${BENCH_SOURCES:-postgres mariadb sqlite}"
read -ra formats <<<"${BENCH_FORMATS:-CSV NDJSON PARQUET XLSX}"
largest=$(printf '%s\n' "${sizes[@]}" | sort -n | tail -n 1)
store=()
[[ ${BENCH_STORE:-local} != s3 ]] || store=("${bucket[@]}")
rows_of_workbook=1048575
promised_mib=64

measure() { # SOURCE FORMAT ROWS
    local idle most
    # A fresh process for each, or the second would start with what the first left.
    start worker $((port + 1)) OUTPORT_CONNECTIONS_BENCH="$(url_of "$1")" "${store[@]}"
    sleep 2
    idle=$(held "${pid[worker]}" VmRSS)
    say "$1: exporting $3 rows as $2"
    export_rows "$3" '{"resource": "order", "format": "'"$2"'", "filters": {"id": {"operator": "LTE", "value": '"$3"'}}}'
    most=$(held "${pid[worker]}" VmHWM)
    stop worker
    forget_file
    jq -c --arg source "$1" --arg format "$2" --argjson idle "$idle" --argjson most "$most" --argjson took "$took" '
        {source: $source, format: $format, rows: .totalRows, megabytes: (.sizeBytes / 1e6 | round), seconds: $took,
         megabytesPerSecond: (.sizeBytes / 1e6 / $took | round),
         idleMiB: ($idle / 1024 | round), mostMiB: ($most / 1024 | round),
         addedMiB: (($most - $idle) / 1024 | round)}' <<<"$answer" | tee -a "$folder/figures"
}

room $((largest * 1200))
others=()
for one in "${sources[@]}"; do [[ $one == postgres ]] || others+=("$one"); done
set_stage "$largest" "${others[@]}"
start api "$port"
[[ ${#store[@]} == 0 ]] || start_sink
for one in "${sources[@]}"; do
    for format in "${formats[@]}"; do
        for rows in "${sizes[@]}"; do
            [[ $format != XLSX || $rows -le $rows_of_workbook ]] || continue
            measure "$one" "$format" "$rows"
        done
    done
done
jq -se --argjson promised "$promised_mib" 'all(.addedMiB <= $promised)' "$folder/figures" >/dev/null ||
    { say "an export took more than $promised_mib MiB"; exit 1; }
