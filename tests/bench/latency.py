"""Requests exports at a steady rate, whatever the answers take: latency.py URL PER_SECOND SECONDS."""

import http.client
import json
import os
import queue
import sys
import threading
import time
import urllib.parse

CLIENTS = 8
BODY = json.dumps(
    {
        "resource": "order",
        "columns": ["code", "status"],
        "filters": {"id": {"operator": "EQ", "value": 1}},
    }
)
HEADERS = {
    "Authorization": "Bearer " + os.environ["BENCH_TOKEN"],
    "Content-Type": "application/json",
}


def client(host, due, failures):
    connection = http.client.HTTPConnection(host, timeout=30)
    while True:
        at = due.get()
        if at is None:
            return
        time.sleep(max(0.0, at - time.monotonic()))
        try:
            connection.request("POST", "/v1/exports", BODY, HEADERS)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 202:
                failures.append(f"{answer.status}: {body[:200]!r}")
        except OSError as error:
            connection.close()
            failures.append(repr(error))


def main():
    url, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    due, failures = queue.Queue(), []
    start = time.monotonic() + 0.5
    for number in range(round(rate * seconds)):
        due.put(start + number / rate)
    for _ in range(CLIENTS):
        due.put(None)
    host = urllib.parse.urlsplit(url).netloc
    clients = [threading.Thread(target=client, args=(host, due, failures)) for _ in range(CLIENTS)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    if failures:
        sys.exit(f"{len(failures)} requests failed, the first: {failures[0]}")


main()
