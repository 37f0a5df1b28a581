#!/usr/bin/env bash
# How long a job waits between its insert and its start, while exports of one row are requested at
# a steady rate: one API, one worker, PostgreSQL. Both instants are by the database's clock: a job
# that never ran before is due from its insert on. The end counts from the request's arrival.
#
#   tests/bench/latency.sh [SECONDS] [PER_SECOND]      default 60 30
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
seconds=${1:-60}
rate=${2:-30}

set_stage 10000
start api "$port"
start worker $((port + 1))
say "$rate exports a second for $seconds s"
BENCH_TOKEN=$token python3 "$bench/latency.py" "$api" "$rate" "$seconds"

unfinished="SELECT count(*) FROM jobs WHERE status IN ('PENDING', 'PROCESSING')"
for try in $(seq 300); do
    [[ $(sql "$(database "$postgres_server" "$state")" -c "$unfinished") == 0 ]] && break
    sleep 0.1
done
sql "$(database "$postgres_server" "$state")" -c "
    SELECT json_build_object(
        'jobs', count(*),
        'notCompletedAtOnce', count(*) FILTER (WHERE status <> 'COMPLETED' OR run <> 1),
        'startP50Ms', percentile_disc(0.5) WITHIN GROUP (ORDER BY started_at - due_at),
        'startP99Ms', percentile_disc(0.99) WITHIN GROUP (ORDER BY started_at - due_at),
        'startMostMs', max(started_at - due_at),
        'endP50Ms', percentile_disc(0.5) WITHIN GROUP (ORDER BY finished_at - created_at),
        'endP99Ms', percentile_disc(0.99) WITHIN GROUP (ORDER BY finished_at - created_at))
    FROM jobs" | tee "$folder/result.json"
jq -e --argjson jobs $((seconds * rate)) '.jobs == $jobs and .notCompletedAtOnce == 0' "$folder/result.json" >/dev/null ||
    { say 'not every request became a job that completed in its first run'; exit 1; }
