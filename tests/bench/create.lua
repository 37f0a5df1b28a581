-- wrk's part of create.sh: posts the same request and counts the answers by status.

wrk.method = "POST"
wrk.headers["Authorization"] = "Bearer " .. os.getenv("BENCH_TOKEN")
wrk.headers["Content-Type"] = "application/json"
wrk.body = [[{"resource": "order", "columns": ["code", "status", "totalAmount"],
  "filters": {"createdAt": {"operator": "BETWEEN", "value": ["2026-07-01", "2026-07-04"]}}}]]

local threads = {}
accepted = 0
others = 0

function setup(thread)
  table.insert(threads, thread)
end

function response(status)
  if status == 202 then
    accepted = accepted + 1
  else
    others = others + 1
  end
end

function done(summary, latency)
  local yes, no = 0, 0
  for _, thread in ipairs(threads) do
    yes = yes + thread:get("accepted")
    no = no + thread:get("others")
  end
  local e = summary.errors
  io.write(string.format(
    '{"accepted": %d, "otherAnswers": %d, "brokenConnections": %d, "perSecond": %.0f, "p50Ms": %.1f, "p99Ms": %.1f}\n',
    yes, no, e.connect + e.read + e.write + e.timeout, yes / (summary.duration / 1e6),
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
