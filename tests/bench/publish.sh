#!/usr/bin/env bash
# Job events that one worker publishes a second from a full outbox in PostgreSQL: claimed,
# published persistent and mandatory to a durable queue, confirmed, recorded. Beside it a peer that
# publishes one event, waits for its confirm and records it before the next, as small outbox relays
# do. They take turns; every event must be in the queue and recorded.
#
#   tests/bench/publish.sh [EVENTS [ROUNDS]]      default 100000 3; the peer gets a tenth of them
#
# RabbitMQ is where OUTPORT_TEST_RABBITMQ says (default amqp://guest:guest@127.0.0.1:5672).
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
events=${1:-100000}
rounds=${2:-3}
peers=$root/target/tools/broker-peers
exchange=outport.bench.$$

if ! cmp -s "$bench/peers/broker.txt" "$peers/wanted"; then
    say "installing what to measure against into $peers"
    python3 -m venv "$peers"
    "$peers/bin/pip" install --quiet --disable-pip-version-check -r "$bench/peers/broker.txt"
    cp "$bench/peers/broker.txt" "$peers/wanted"
fi
peer() { "$peers/bin/python" "$bench/peers/sequential_publisher.py" "$broker" "$exchange" "$@"; }

set_stage 1
peer make
take_away() { peer drop; }
state_url=$(database "$postgres_server" "$state")
# The tables, and who wants the events.
start worker $((port + 1)) "RABBITMQ_JOB_EVENTS_EXCHANGE=$exchange" OUTPORT_BROKER_TOPOLOGY=declare OUTPORT_BROKER_UNROUTABLE=retry
stop worker

# fill EVENTS: an outbox with as many events that nobody has been told of. Their ids are in the order
# of time, as Outport's own are: where an index is written says how much of it is.
in_order() { printf %s "overlay(gen_random_uuid()::text PLACING to_char($1, 'FM00000000') FROM 1 FOR 8)::uuid"; }
fill() {
    sql "$state_url" -c "TRUNCATE deliveries, events CASCADE" -c "
        WITH made AS (
            INSERT INTO events (id, event_type, job_id, organization_id, body, created_at)
            SELECT id, 'job.completed', job, '$organization',
                format('{\"jobId\":\"%s\",\"status\":\"completed\",\"metadata\":{\"source\":\"order\",\"correlationId\":\"settlement-%s\"},\"result\":{\"path\":\"data-transfer/exports/%s/orders.csv\",\"sizeBytes\":184320,\"rowCount\":1204,\"format\":\"csv\",\"hmac\":\"%s\",\"integrity\":{\"algorithm\":\"HMAC-SHA256\",\"signature\":\"%s\"},\"protection\":{\"encrypted\":true,\"appliedBy\":\"adapter\",\"mode\":\"outport-sealed-v1\"}},\"executionTimeMs\":8421,\"completedAt\":\"2026-07-13T18:04:11.204Z\"}',
                    job, n, job, repeat('9f1c', 16), repeat('9f1c', 16)),
                1000 * extract(epoch FROM now())::bigint
            FROM (SELECT n, $(in_order n) AS id, $(in_order n) AS job FROM generate_series(1, $1) AS n) AS jobs
            RETURNING *)
        INSERT INTO deliveries (id, event_id, handler, target, job_id, organization_id, status,
            run, failures, due_at, created_at)
        SELECT $(in_order 'row_number() OVER (ORDER BY id)'), id, 'publish-job-event', '', job_id, organization_id, 'PENDING',
            0, 0, created_at, created_at FROM made" -c 'VACUUM ANALYZE deliveries, events' -c CHECKPOINT
}

left() { sql "$state_url" -c "SELECT count(*) FROM deliveries WHERE status <> 'DONE'"; }

# measured NAME EVENTS: from the first recorded window to the last; all must be in the queue.
measured() {
    local queued
    queued=$(peer take)
    [[ $(left) == 0 && $queued == "$2" ]] || { say "$1: $(left) left, $queued of $2 in the queue"; exit 1; }
    sql "$state_url" -c "
        SELECT json_build_object('publisher', '$1', 'events', $2, 'perSecond', round(
            count(*) FILTER (WHERE finished_at > first) * 1000.0 / (max(finished_at) - min(first))))
        FROM deliveries, (SELECT min(finished_at) AS first FROM deliveries) AS since"
}

for round in $(seq "$rounds"); do
    say "round $round of $rounds"
    fill "$events"
    start worker $((port + 1)) "RABBITMQ_JOB_EVENTS_EXCHANGE=$exchange" OUTPORT_BROKER_TOPOLOGY=declare OUTPORT_BROKER_UNROUTABLE=retry
    while [[ $(left) != 0 ]]; do sleep 0.5; done
    measured outport "$events"
    stop worker
    fill $((events / 10))
    peer publish "$state_url"
    measured sequential $((events / 10))
done | tee "$folder/result.json"

jq -s -e 'def median: sort | .[length / 2 | floor];
    (map(select(.publisher == "outport").perSecond) | median) as $ours
    | (map(select(.publisher == "sequential").perSecond) | median) as $theirs
    | {outportPerSecond: $ours, sequentialPerSecond: $theirs, ratio: ($ours / $theirs * 10 | round / 10)}' "$folder/result.json"
