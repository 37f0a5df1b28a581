#!/usr/bin/env bash
# How many exports a second one API takes on PostgreSQL: each answer is a committed job.
#
#   tests/bench/create.sh [SECONDS]      default 30; 32 connections, or $BENCH_CONNECTIONS
#
# No worker runs. Afterwards the rows are counted: each 202 must be one. A request that was under
# way when wrk stopped may be a row without an answer, so at most one a connection more.
source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
command -v wrk >/dev/null || { say 'missing: wrk'; exit 1; }
seconds=${1:-30}
connections=${BENCH_CONNECTIONS:-32}

set_stage 1
start api "$port"
export BENCH_TOKEN=$token
load() { wrk --threads 1 --connections "$connections" --duration "$1" --script "$bench/create.lua" "$api/v1/exports" | tail -n 1; }
rows() { sql "$(database "$postgres_server" "$state")" -c 'SELECT count(*) FROM jobs'; }

say 'warming up'
load 3s >/dev/null
stop api
start api "$port"
before=$(rows)
say "posting for $seconds s over $connections connections"
result=$(load "${seconds}s")
stop api
made=$(($(rows) - before))
jq -c --argjson rows "$made" '. + {rows: $rows}' <<<"$result"
jq -e --argjson rows "$made" --argjson most "$connections" \
    '.otherAnswers == 0 and .brokenConnections == 0 and .accepted > 0 and $rows >= .accepted and $rows <= .accepted + $most' \
    <<<"$result" >/dev/null || { say 'rows and answers do not fit, or not every answer was 202'; exit 1; }
