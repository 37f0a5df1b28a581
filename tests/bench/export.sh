#!/usr/bin/env bash
# Exports a table through one worker and, taking turns, the same rows through `psql \copy`: how
# many times as fast, and what either takes of processors and memory.
#
#   tests/bench/export.sh [ROWS] [ROUNDS]      default 5000000 5
#
# The worker's time is its own, from the job's start to its end: reading, encoding, the guard
# against formulas, SHA-256, writing the file and syncing it to the disk. The time of psql is that
# of its process; nobody syncs its file. Three cases: nine columns; six of them; nine over one
# connection, as an ordered request is read. Linux alone. 5,000,000 rows take about 4 GB in all.
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
rows=${1:-5000000}
rounds=${2:-5}
ticks=$(getconf CLK_TCK)

all='id code status totalAmount createdAt customerName note organizationId companyId'
six='id code status totalAmount createdAt customerName'
declare -A columns=([nine]=$all [six]=$six [alone]=$all)
snake() { sed -E 's/([A-Z])/_\L\1/g; s/ /, /g' <<<"$1"; }

set_stage "$rows"
start api "$port"
: >"$folder/figures"

# Seconds of processors that a process took so far, and the most memory it held, in MiB.
processors() { awk -v ticks="$ticks" '{ sub(/.*\) /, ""); print ($12 + $13) / ticks }' "/proc/$1/stat"; }
most() { awk '$1 == "VmHWM:" { printf "%d", $2 / 1024 }' "/proc/$1/status"; }
# What ended server processes took, if the server is one of this machine's that may be looked at.
postmaster=$(head -n 1 "$(sql "$server" -c 'SHOW data_directory')/postmaster.pid" 2>/dev/null || true)
served() { [[ -z $postmaster ]] && echo 0 || awk -v ticks="$ticks" '{ sub(/.*\) /, ""); print ($14 + $15) / ticks }' "/proc/$postmaster/stat"; }

figure() { # CASE WHO SECONDS PROCESSORS SERVER MIB BYTES
    jq -nc --arg case "$1" --arg who "$2" --argjson seconds "$3" --argjson processors "$4" --argjson server "$5" \
        --argjson mib "$6" --argjson bytes "$7" '$ARGS.named' | tee -a "$folder/figures" >&2
}

with_outport() { # CASE
    local before idle server_before job answer took list
    local url=$OUTPORT_CONNECTIONS_BENCH
    if [[ $1 == alone ]]; then
        [[ $url == *\?* ]] && url+='&connections=1' || url+='?connections=1'
    fi
    OUTPORT_CONNECTIONS_BENCH=$url start worker $((port + 1))
    sleep 1
    idle=$(most "${pid[worker]}")
    before=$(processors "${pid[worker]}")
    server_before=$(served)
    list=$(jq -nc '$ARGS.positional' --args ${columns[$1]})
    job=$(call "$api/v1/exports" -d '{"resource": "order", "columns": '"$list"'}' | jq -r .exportJobId)
    while :; do
        answer=$(call "$api/v1/exports/$job")
        case $(jq -r .status <<<"$answer") in
        COMPLETED) break ;;
        FAILED | CANCELED) say "$answer"; exit 1 ;;
        esac
        sleep 0.2
    done
    [[ $(jq -r .totalRows <<<"$answer") == "$rows" ]] || { say "not all rows: $answer"; exit 1; }
    took=$(sql "$(database "$state")" -c "SELECT (finished_at - started_at) / 1000.0 FROM jobs WHERE id = '$job'")
    figure "$1" outport "$took" \
        "$(awk -v a="$before" -v b="$(processors "${pid[worker]}")" 'BEGIN { print b - a }')" \
        "$(awk -v a="$server_before" -v b="$(served)" 'BEGIN { print b - a }')" \
        "$(($(most "${pid[worker]}") - idle))" "$(jq .sizeBytes <<<"$answer")"
    stop worker
    call -X DELETE "$api/v1/exports/$job" >/dev/null
    find "$folder/data" -name '*.csv' -delete
}

with_psql() { # CASE
    local begun took used memory=0 process server_before
    server_before=$(served)
    begun=$(date +%s%N)
    psql -X -q "$(database "$source")" -c "\\copy (SELECT $(snake "${columns[$1]}") FROM orders) TO '$folder/psql.csv' CSV HEADER" &
    process=$!
    while [[ $(cut -d ' ' -f 3 "/proc/$process/stat" 2>/dev/null) == [RSD] ]]; do
        used=$(processors "$process" 2>/dev/null) || break
        memory=$(most "$process" 2>/dev/null) || break
        sleep 0.05
    done
    wait "$process"
    took=$(awk -v a="$begun" -v b="$(date +%s%N)" 'BEGIN { print (b - a) / 1e9 }')
    # Until the server has noticed that its process ended.
    sleep 0.5
    figure "$1" psql "$took" "${used:-0}" \
        "$(awk -v a="$server_before" -v b="$(served)" 'BEGIN { print b - a }')" \
        "${memory:-0}" "$(stat -c %s "$folder/psql.csv")"
    rm "$folder/psql.csv"
}

for round in $(seq "$rounds"); do
    for case in ${BENCH_CASES:-nine six alone}; do
        say "round $round of $rounds: $case"
        with_outport "$case"
        with_psql "$case"
    done
done

jq -sc --argjson rows "$rows" '
    def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
    def of($who): map(select(.who == $who)) | {
        seconds: (map(.seconds) | median), fastest: (map(.seconds) | min), slowest: (map(.seconds) | max),
        processorSeconds: (map(.processors) | median), serverSeconds: (map(.server) | median),
        mostMiB: (map(.mib) | max)};
    group_by(.case)[] | {case: .[0].case, rows: $rows, rounds: (length / 2), outport: of("outport"), psql: of("psql")}
    | . + {timesAsFast: (.psql.seconds / .outport.seconds * 100 | round / 100)}' "$folder/figures"
