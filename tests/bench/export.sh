#!/usr/bin/env bash
# Exports a table as CSV through one worker and, taking turns, the same rows by somebody else's
# means: how many times as fast, and what either takes of processors and memory.
#
#   tests/bench/export.sh [ROWS [ROUNDS [CASE…]]]      default 5000000 5 nine six alone
#
#   nine six alone   PostgreSQL against `psql \copy`: nine columns; six of them; nine over one
#                    connection, as an ordered request is read
#   mariadb          against `mariadb --quick --batch`
#   sqlite           against `sqlite3 -csv`
#   s3 sealed        PostgreSQL into a bucket that keeps nothing, as it is and sealed, against
#                    `psql | aws s3 cp -`
#   django           PostgreSQL against `.iterator()` and Python's csv
#   node             PostgreSQL against pg-query-stream and csv-stringify
#
# The worker's time is its own, from the job's start to its end: reading, encoding, the guard
# against formulas, SHA-256, writing the file and syncing it to the disk. The others' time is that
# of their processes; nobody syncs their file. Linux alone. A million rows take about 1 GB in all.
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
rows=${1:-5000000}
rounds=${2:-5}
cases=("${@:3}")
[[ ${#cases[@]} -gt 0 ]] || cases=(nine six alone)

peers=$root/target/tools/peers
node_packages=(pg@8.23.1 pg-query-stream@4.17.0 csv-stringify@6.9.0)
six='id code status totalAmount createdAt customerName'
nine="$six note organizationId companyId"
columns_of() { [[ $1 == six ]] && echo "$six" || echo "$nine"; }
in_bucket() { [[ $1 == s3 || $1 == sealed ]]; }
source_of() { [[ $1 == mariadb || $1 == sqlite ]] && echo "$1" || echo postgres; }
peer_of() {
    case $1 in
    nine | six | alone) echo psql ;;
    sqlite) echo sqlite3 ;;
    s3 | sealed) echo aws ;;
    mariadb | django | node) echo "$1" ;;
    *) say "no such case: $1"; return 1 ;;
    esac
}

# What else a case tells the worker.
settings_of() {
    local url
    url=$(url_of "$(source_of "$1")")
    if [[ $1 == alone ]]; then
        [[ $url == *\?* ]] && url+='&connections=1' || url+='?connections=1'
    fi
    printf '%s\n' "OUTPORT_CONNECTIONS_BENCH=$url"
    ! in_bucket "$1" || printf '%s\n' "${bucket[@]}"
    [[ $1 != sealed ]] || printf '%s\n' OUTPORT_PROTECTION=sealed
}

# The peers, each in a shell of its own: all orders, $columns of them, into $file.
by_psql() { psql -X -q "$postgres" -c "\\copy (SELECT $columns FROM orders) TO '$file' CSV HEADER"; }
by_mariadb() { maria --quick --batch "$source" -e "SELECT $columns FROM orders" >"$file"; }
by_sqlite3() { sqlite3 -csv -header "$folder/orders.db" "SELECT $columns FROM orders" >"$file"; }
by_django() { "$peers/bin/python" "$bench/peers/django_iterator.py" "$postgres" "$file"; }
by_node() { NODE_PATH=$peers/node_modules node "$bench/peers/node_stream.cjs" "$postgres" "$file"; }
by_aws() {
    psql -X -q "$postgres" -c "COPY (SELECT $columns FROM orders) TO STDOUT CSV HEADER" |
        "$peers/bin/aws" --endpoint-url "$sink" s3 cp --only-show-errors - s3://bench/orders.csv
}

# Pinned, and once.
install_peers() {
    local wanted
    wanted=$(cat "$bench/peers/requirements.txt" && echo "${node_packages[*]}")
    [[ $wanted != "$(cat "$peers/wanted" 2>/dev/null)" ]] || return 0
    say "installing what to measure against into $peers"
    rm -rf "$peers"
    python3 -m venv "$peers"
    "$peers/bin/pip" install --quiet --disable-pip-version-check -r "$bench/peers/requirements.txt"
    npm install --silent --no-save --prefix "$peers" "${node_packages[@]}" >&2
    echo "$wanted" >"$peers/wanted"
}

# Processor seconds of the database server, if it is one of this machine's that may be looked at:
# of PostgreSQL those of its ended processes.
server_pid() {
    case $1 in
    postgres) head -n 1 "$(sql "$postgres_server" -c 'SHOW data_directory')/postmaster.pid" 2>/dev/null ;;
    mariadb) cat "$(maria -N -e 'SELECT @@pid_file')" 2>/dev/null ;;
    esac || true
}
served() { # SOURCE
    local from
    [[ $1 == postgres ]] && from=14 || from=12
    [[ -r /proc/${server[$1]:-none}/stat ]] || { echo 0; return; }
    awk -v ticks="$ticks" -v from="$from" '{ sub(/.*\) /, ""); print ($from + $(from + 1)) / ticks }' "/proc/${server[$1]}/stat"
}

# Rows of a file after its header; in that of mariadb each is a line.
records() {
    if [[ $2 == mariadb ]]; then
        echo $(($(wc -l <"$1") - 1))
    else
        python3 -c 'import csv, sys; print(sum(1 for _ in csv.reader(open(sys.argv[1], newline="", encoding="utf-8"))) - 1)' "$1"
    fi
}
# Looks into the first file of each kind.
check() { # CASE WHO FILE
    [[ -z ${checked[$1 $2]:-} && -n $3 ]] || return 0
    checked[$1 $2]=1
    [[ $(records "$3" "$2") == "$rows" ]] || { say "$1: the file of $2 has not $rows rows"; exit 1; }
}

figure() { # CASE WHO SECONDS PROCESSORS SERVER KIB BYTES
    jq -nc --arg case "$1" --arg who "$2" --argjson seconds "$3" --argjson processors "$4" --argjson server "$5" \
        --argjson mib "$(($6 / 1024))" --argjson bytes "$7" '$ARGS.named' | tee -a "$folder/figures" >&2
}
minus() { awk -v a="$1" -v b="$2" 'BEGIN { print a - b }'; }

with_outport() { # CASE
    local from idle before server_before list settings
    from=$(source_of "$1")
    mapfile -t settings < <(settings_of "$1")
    start worker $((port + 1)) "${settings[@]}"
    sleep 1
    idle=$(held "${pid[worker]}" VmRSS)
    before=$(processors "${pid[worker]}")
    server_before=$(served "$from")
    # shellcheck disable=SC2046
    list=$(jq -nc '$ARGS.positional' --args $(columns_of "$1"))
    export_rows "$rows" '{"resource": "order", "columns": '"$list"'}'
    figure "$1" outport "$took" "$(minus "$(processors "${pid[worker]}")" "$before")" \
        "$(minus "$(served "$from")" "$server_before")" \
        $(($(held "${pid[worker]}" VmHWM) - idle)) "$(jq .sizeBytes <<<"$answer")"
    check "$1" outport "$(in_bucket "$1" || find "$folder/data/objects" -name '*.csv')"
    stop worker
    forget_file
}

with_peer() { # CASE
    local from who server_before seconds user system kib bytes
    from=$(source_of "$1")
    who=$(peer_of "$1")
    server_before=$(served "$from")
    columns=$(columns_of "$1" | sed -E 's/([A-Z])/_\L\1/g; s/ /, /g') \
        /usr/bin/time --output="$folder/time" --format='%e %U %S %M' bash -euo pipefail -c "by_$who"
    read -r seconds user system kib <"$folder/time"
    # Until the server has noticed that its process ended.
    sleep 0.5
    if in_bucket "$1"; then
        bytes=$(curl -sfI "$sink/bench/orders.csv" | awk 'tolower($1) == "content-length:" { print $2 + 0 }')
    else
        bytes=$(stat -c %s "$file")
        check "$1" "$who" "$file"
        rm "$file"
    fi
    figure "$1" "$who" "$seconds" "$(minus "$user" "-$system")" "$(minus "$(served "$from")" "$server_before")" "$kib" "$bytes"
}

need /usr/bin/time python3
declare -A server=() checked=()
sources=()
for case in "${cases[@]}"; do
    peer_of "$case" >/dev/null
    case $case in
    mariadb) need mariadb && sources+=(mariadb) ;;
    sqlite) need sqlite3 && sources+=(sqlite) ;;
    s3 | sealed | django | node) need node npm && install_peers ;;
    esac
done
room $((rows * 1000))
set_stage "$rows" "${sources[@]}"
for one in postgres "${sources[@]}"; do server[$one]=$(server_pid "$one"); done
start api "$port"
for case in "${cases[@]}"; do
    ! in_bucket "$case" || { start_sink; break; }
done

postgres=$(url_of postgres)
file=$folder/peer.csv
export AWS_ACCESS_KEY_ID=bench AWS_SECRET_ACCESS_KEY=bench AWS_DEFAULT_REGION=us-east-1
export bench folder source mariadb_server postgres sink peers file
export -f maria by_psql by_mariadb by_sqlite3 by_django by_node by_aws
: >"$folder/figures"
for round in $(seq "$rounds"); do
    for case in "${cases[@]}"; do
        say "round $round of $rounds: $case"
        with_outport "$case"
        with_peer "$case"
    done
done

jq -sc --argjson rows "$rows" --args '
    def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
    def figures: {
        who: .[0].who, seconds: (map(.seconds) | median), fastest: (map(.seconds) | min), slowest: (map(.seconds) | max),
        processorSeconds: (map(.processors) | median), serverSeconds: (map(.server) | median),
        mostMiB: (map(.mib) | max), bytes: .[0].bytes};
    . as $all | $ARGS.positional[] as $case | $all | map(select(.case == $case)) | {case: $case, rows: $rows, rounds: (length / 2),
        outport: (map(select(.who == "outport")) | figures | del(.who)), peer: (map(select(.who != "outport")) | figures)}
    | . + {timesAsFast: (.peer.seconds / .outport.seconds * 100 | round / 100)}
    | if (.outport.bytes / .peer.bytes - 1 | fabs) < 0.1 then . else error("\(.): one file is larger than the other") end
    ' "${cases[@]}" <"$folder/figures"
