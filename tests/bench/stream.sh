#!/usr/bin/env bash
# The live stream of one API on PostgreSQL: the time from an event's commit to each of a thousand
# WebSockets on its channel, events that go at once and events that travel together, and the same
# with one more that reads nothing; then how soon all of them have everything after they lost their
# connections at one moment; then what ten thousand that only listen take of memory.
#
#   tests/bench/stream.sh [SUBSCRIBERS [IDLE]]      default 1000 10000
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
subscribers=${1:-1000}
idle=${2:-10000}
events=300
rounds=5
every_ms=50
promised_ms=50
[[ $(ulimit -n) == unlimited || $(ulimit -n) -gt $((idle + 1000)) ]] || ulimit -n $((idle + 1000))
# With the service, so that what both are made of is built once.
examples=$BENCH_BIN
if [[ ! -x $examples/stream_load ]]; then
    (cd "$root" && cargo build --release --locked --quiet -p outport -p outport-client --bins --examples)
    examples=$root/target/release/examples
fi
load=$examples/stream_load

set_stage 1
start api "$port"
export BENCH_TOKEN=$token
measure() { "$load" "$api" "organization:$organization" latency "$@" | tee -a "$folder/figures"; }

say "$subscribers subscribers, an event every $every_ms ms; then one more that is stalled; $rounds rounds"
measure plan.changed "$subscribers" 50 "$every_ms" 100 >/dev/null
: >"$folder/figures"
for _ in $(seq "$rounds"); do
    measure plan.changed "$subscribers" "$events" "$every_ms" 4000
    measure plan.changed "$subscribers" "$events" "$every_ms" 4000 stalled
    measure credit.settled "$subscribers" "$events" "$every_ms" 100
done
jq -sc 'def median: sort | .[length / 2 | floor];
    def of(type; stalled): map(select(.type == type and .stalled == stalled)) | {p50: map(.p50Ms) | median, p99: map(.p99Ms) | median};
    {atOnce: of("plan.changed"; false), besideStalled: of("plan.changed"; true), together: of("credit.settled"; false)}' \
    "$folder/figures" | tee "$folder/medians"

say "$subscribers followers that lose the server together, and twenty events meanwhile"
"$examples/stream_drop" "$api" "organization:$organization" "$subscribers" 20

say "$idle subscribers that only listen"
stop api
start api "$port"
before=$(held "${pid[api]}" VmRSS)
coproc idling { "$load" "$api" "organization:$organization" idle "$idle"; }
read -r -u "${idling[0]}" ready
[[ $ready == ready ]] || { say 'not all could subscribe'; exit 1; }
after=$(held "${pid[api]}" VmRSS)
exec {idling[1]}>&-
jq -cn --argjson idle "$idle" --argjson before "$before" --argjson after "$after" \
    '{idle: $idle, MiB: (($after - $before) / 1024 | round), KiBEach: (($after - $before) / $idle | . * 10 | round / 10)}'

jq -e --argjson promised "$promised_ms" '.atOnce.p99 <= $promised' "$folder/medians" >/dev/null ||
    { say "an event took more than $promised_ms ms to one of a hundred"; exit 1; }
