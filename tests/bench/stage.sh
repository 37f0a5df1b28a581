# Sourced by the benchmarks: a fresh state, sources with the table `orders`, Outport's own
# processes, and an end that leaves nothing behind.

set -euo pipefail

bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$bench/../.." && pwd)
broker=${OUTPORT_TEST_RABBITMQ:-amqp://guest:guest@127.0.0.1:5672}
organization=0197a801-1690-7590-b3cf-19599b9be3e4
folder=$(mktemp -d "${TMPDIR:-/tmp}/outport-bench.XXXXXX")
state=outport_bench_$$_state
port=${BENCH_PORT:-18080}
api=http://127.0.0.1:$port
ticks=$(getconf CLK_TCK)
declare -A pid=()

say() { printf '%s\n' "$*" >&2; }
need() {
    local one
    for one in "$@"; do command -v "$one" >/dev/null || { say "missing: $one"; exit 1; }; done
}
# room BYTES: whether the disk has them.
room() {
    local free
    free=$(df --block-size=1 --output=avail "$folder" | tail -n 1)
    ((free > $1)) || { say "$(($1 / 1000000000)) GB are needed and $((free / 1000000000)) GB are free"; exit 1; }
}

source "$bench/sources.sh"

leave() {
    local status=$? role
    trap - EXIT
    for role in "${!pid[@]}"; do stop "$role"; done
    # What a benchmark of its own has to take away.
    ! declare -F take_away >/dev/null || take_away || true
    [[ $status == 0 ]] || tail -n 20 "$folder"/*.log >&2 2>/dev/null || true
    sql "$postgres_server" -c "DROP DATABASE IF EXISTS $state WITH (FORCE)" || true
    drop_sources
    rm -rf "$folder"
    exit "$status"
}
trap leave EXIT
trap 'exit 130' INT TERM
need psql curl jq
for one in $port $((port + 1)) $((port + 2)); do
    ! (: <"/dev/tcp/127.0.0.1/$one") 2>/dev/null || { say "something listens at port $one; BENCH_PORT says others"; exit 1; }
done

# Release executables; BENCH_BIN names a folder with others.
if [[ -z ${BENCH_BIN:-} ]]; then
    (cd "$root" && cargo build --release --locked --quiet -p outport)
    BENCH_BIN=$root/target/release
fi
BENCH_BIN=$(cd "$BENCH_BIN" && pwd)

# set_stage ROWS [SOURCE…]: databases (PostgreSQL's always), configuration, a token.
set_stage() {
    local name one
    sql "$postgres_server" -c "CREATE DATABASE $state"
    for one in postgres "${@:2}"; do make_source "$one" "$1"; done
    mkdir "$folder/resources"
    cp "$bench/order.toml" "$folder/resources/"
    # Nothing of the caller's own configuration.
    for name in ${!OUTPORT_@}; do unset "$name"; done
    APP_ENC_KEY=$("$BENCH_BIN/outport" keys generate)
    export APP_ENC_KEY
    export OUTPORT_STATE_URL OUTPORT_CONNECTIONS_BENCH
    OUTPORT_STATE_URL=$(database "$postgres_server" "$state")
    OUTPORT_CONNECTIONS_BENCH=$(url_of postgres)
    export OUTPORT_DATA_DIR=$folder/data OUTPORT_RESOURCES_DIR=$folder/resources
    # Files as they are: a case that seals them says so.
    export OUTPORT_LOG_FILTER=warn OUTPORT_PROTECTION=none
    export OUTPORT_LIMITS_QUEUED_PER_ORGANIZATION=10000000 OUTPORT_LIMITS_REQUESTS_PER_MINUTE=0
    # A worker needs a broker: an exchange that is always there, and nobody who listens.
    export OUTPORT_BROKER_URL=$broker RABBITMQ_JOB_EVENTS_EXCHANGE=amq.topic STREAMING_ENABLED=true
    export STREAMING_CLOUDEVENTS_SOURCE=//outport/bench OUTPORT_BROKER_TOPOLOGY=check OUTPORT_BROKER_UNROUTABLE=accept
    token=$(cd "$folder" && "$BENCH_BIN/outport" token create --name bench --organization "$organization" --email bench@example.com \
        --scopes exports:read,exports:write,resources:read,events:read,events:write)
}

# start ROLE PORT [NAME=VALUE…]: outport-ROLE with these settings, ready. Its process is ${pid[ROLE]}.
start() {
    (cd "$folder" && exec env "OUTPORT_LISTEN=127.0.0.1:$2" "${@:3}" "$BENCH_BIN/outport-$1") >"$folder/$1.log" 2>&1 &
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

# start_sink: a bucket that keeps nothing; $sink is its server, and with the settings ${bucket[@]}
# a worker writes there.
sink=http://127.0.0.1:$((port + 2))
bucket=(OUTPORT_S3_BUCKET=bench "OUTPORT_S3_ENDPOINT=$sink" OUTPORT_S3_PATH_STYLE=true
    OUTPORT_S3_ACCESS_KEY_ID=bench OUTPORT_S3_SECRET_ACCESS_KEY=bench)
start_sink() {
    need node
    node "$bench/null_sink.mjs" $((port + 2)) >"$folder/sink.log" 2>&1 &
    pid[sink]=$!
}

# Of a process: seconds of processors so far, and KiB of memory (VmRSS now, VmHWM at most).
processors() { awk -v ticks="$ticks" '{ sub(/.*\) /, ""); print ($12 + $13) / ticks }' "/proc/$1/stat"; }
held() { awk -v name="$2:" '$1 == name { print $2 }' "/proc/$1/status"; }

call() {
    curl -sS --fail-with-body -H "Authorization: Bearer $token" -H 'Content-Type: application/json' "$@"
}

# export_rows ROWS BODY: an export that must have so many rows, to its end. Its last answer is
# $answer, and the worker's seconds from the job's start to its end are $took.
export_rows() {
    local job
    job=$(call "$api/v1/exports" -d "$2" | jq -r .exportJobId)
    while :; do
        answer=$(call "$api/v1/exports/$job")
        case $(jq -r .status <<<"$answer") in
        COMPLETED) break ;;
        FAILED | CANCELED) say "$answer"; exit 1 ;;
        esac
        sleep 0.2
    done
    [[ $(jq -r .totalRows <<<"$answer") == "$1" ]] || { say "not $1 rows: $answer"; exit 1; }
    took=$(sql "$(database "$postgres_server" "$state")" -c "SELECT (finished_at - started_at) / 1000.0 FROM jobs WHERE id = '$job'")
}

# forget_file: of the last export; room for the next.
forget_file() {
    call -X DELETE "$api/v1/exports/$(jq -r .exportJobId <<<"$answer")" >/dev/null
    find "$folder/data/objects" -type f -delete
}
