# Sourced by the benchmarks: a fresh state, a source with the table `orders`, Outport's own
# processes, and an end that leaves nothing behind.

set -euo pipefail

bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$bench/../.." && pwd)
server=${OUTPORT_TEST_POSTGRES:-postgres://postgres@127.0.0.1:5432/postgres}
organization=0197a801-1690-7590-b3cf-19599b9be3e4
folder=$(mktemp -d "${TMPDIR:-/tmp}/outport-bench.XXXXXX")
state=outport_bench_$$_state
source=outport_bench_$$_source
port=${BENCH_PORT:-18080}
api=http://127.0.0.1:$port
declare -A pid=()

say() { printf '%s\n' "$*" >&2; }
sql() { PGOPTIONS='-c client_min_messages=warning' psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
# The same server, another database.
database() { [[ $server =~ ^(.*/)[^/?]*(\?.*)?$ ]] && printf '%s%s%s' "${BASH_REMATCH[1]}" "$1" "${BASH_REMATCH[2]:-}"; }

leave() {
    local status=$?
    trap - EXIT
    for role in "${!pid[@]}"; do stop "$role"; done
    [[ $status == 0 ]] || tail -n 20 "$folder"/*.log >&2 2>/dev/null || true
    sql "$server" -c "DROP DATABASE IF EXISTS $state WITH (FORCE)" -c "DROP DATABASE IF EXISTS $source WITH (FORCE)" || true
    rm -rf "$folder"
    exit "$status"
}
trap leave EXIT
trap 'exit 130' INT TERM

for needed in psql curl jq; do
    command -v "$needed" >/dev/null || { say "missing: $needed"; exit 1; }
done

# Release executables; BENCH_BIN names a folder with others.
if [[ -z ${BENCH_BIN:-} ]]; then
    (cd "$root" && cargo build --release --locked --quiet -p outport)
    BENCH_BIN=$root/target/release
fi

# set_stage ROWS: databases, configuration, a token.
set_stage() {
    say "making a table of $1 rows"
    sql "$server" -c "CREATE DATABASE $state" -c "CREATE DATABASE $source"
    sql -v rows="$1" -f "$bench/orders.sql" "$(database "$source")"
    mkdir "$folder/resources"
    cp "$bench/order.toml" "$folder/resources/"
    # Nothing of the caller's own configuration.
    local name
    for name in ${!OUTPORT_@}; do unset "$name"; done
    APP_ENC_KEY=$("$BENCH_BIN/outport" keys generate)
    export APP_ENC_KEY
    export OUTPORT_STATE_URL OUTPORT_CONNECTIONS_BENCH
    OUTPORT_STATE_URL=$(database "$state")
    OUTPORT_CONNECTIONS_BENCH=$(database "$source")
    export OUTPORT_DATA_DIR=$folder/data OUTPORT_RESOURCES_DIR=$folder/resources
    export OUTPORT_LOG_FILTER=warn
    export OUTPORT_LIMITS_QUEUED_PER_ORGANIZATION=10000000 OUTPORT_LIMITS_REQUESTS_PER_MINUTE=0
    token=$(cd "$folder" && "$BENCH_BIN/outport" token create --name bench --organization "$organization" --email bench@example.com)
}

# start ROLE PORT: outport-ROLE, ready. Its process is ${pid[ROLE]}.
start() {
    (cd "$folder" && OUTPORT_LISTEN=127.0.0.1:$2 exec "$BENCH_BIN/outport-$1") >"$folder/$1.log" 2>&1 &
    pid[$1]=$!
    local try
    for try in $(seq 200); do
        curl -sf -o /dev/null "http://127.0.0.1:$2/readyz" && return
        kill -0 "${pid[$1]}" 2>/dev/null || break
        sleep 0.1
    done
    say "outport-$1 did not become ready"
    exit 1
}

# stop ROLE: in order, and waits for it.
stop() {
    kill "${pid[$1]}" 2>/dev/null && wait "${pid[$1]}" || true
    unset "pid[$1]"
}

call() {
    curl -sS --fail-with-body -H "Authorization: Bearer $token" -H 'Content-Type: application/json' "$@"
}
