"""A consumer of job events: believes what Outport signed, does each job once, and keeps what it
has downloaded and verified in DATA_DIR.

Told by AMQP_URL, QUEUE, EXTERNAL_HMAC_KEYS ("1:<hex>", several separated by commas), OUTPORT_URL,
OUTPORT_TOKEN, DATA_DIR, and MOST_AGE_SECONDS where old messages are to be refused.
"""

import hashlib
import hmac
import json
import os
import pathlib
import re
import sqlite3
import time
import urllib.error
import urllib.request

import pika

EVENTS = {"job.completed", "job.failed"}
JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CHUNK = 64 * 1024


class Refused(Exception):
    """It, or its result, is not what Outport signed, or not to be had: it is never done."""


def read_keys(text):
    """The external keys by version."""
    entries = (entry.strip().split(":") for entry in text.split(","))
    return {version: bytes.fromhex(digits) for version, digits in entries}


def code_of(answer):
    """The code of an answer that is a problem."""
    try:
        return json.load(answer)["code"]
    except (ValueError, LookupError, TypeError):
        return None


class Verifier:
    """Both signatures of a message, and that they speak of one event."""

    def __init__(self, keys, most_age=None):
        self.keys = keys
        self.most_age = most_age

    def verify(self, exchange, routing_key, headers, body):
        """The id of a genuine event; the key by which one that comes again is known."""

        def header(name):
            value = headers.get(name)
            try:
                # Some producers send byte arrays instead of strings.
                value = value.decode() if isinstance(value, (bytes, bytearray)) else value
            except UnicodeDecodeError:
                value = None
            # A line feed would move the border between two signed parts.
            if not isinstance(value, str) or "\n" in value:
                raise Refused(f"forged: the header {name} is missing or malformed")
            return value

        version = header("x-signature-key") if "x-signature-key" in headers else "1"
        key = self.keys.get(version)
        if key is None:
            raise Refused(f"unknown key: x-signature-key is {version!r}")
        signed_at, form = header("t"), header("signature-version")
        tenant, job = header("X-Tenant-ID"), header("ce-subject")
        if form != "v1" or routing_key not in EVENTS or not JOB.fullmatch(job):
            raise Refused("forged: it has not the form of a job event")
        if not re.fullmatch(r"[0-9]+", signed_at):
            raise Refused("forged: the header t must be Unix seconds")

        def check(name, *parts):
            expected = hmac.new(key, b"\n".join(parts), hashlib.sha256).hexdigest()
            # In constant time. As bytes: whoever forges may send anything.
            if not hmac.compare_digest(expected.encode(), header(name).encode()):
                raise Refused(f"forged: the header {name} is not that of this message")

        texts = [signed_at, form, tenant, job, exchange, routing_key]
        check("x-message-signature", *(text.encode() for text in texts), body)
        names = ["ce-id", "ce-type", "ce-source", "ce-time", "ce-tenantid"]
        check("x-attributes-signature", *(header(name).encode() for name in names))
        event = f"fetcher.{routing_key}.{job}"
        if header("ce-id") != event or header("ce-tenantid") != tenant:
            raise Refused("forged: its attributes are those of another message")
        age = int(time.time()) - int(signed_at)
        if self.most_age is not None and age > self.most_age:
            raise Refused(f"stale: it was signed {age} s ago")
        return event


class Consumer:
    """Does what messages ask for."""

    def __init__(self, environment):
        self.keys = read_keys(environment["EXTERNAL_HMAC_KEYS"])
        most_age = environment.get("MOST_AGE_SECONDS")
        self.verifier = Verifier(self.keys, int(most_age) if most_age else None)
        self.url, self.token = environment["OUTPORT_URL"], environment["OUTPORT_TOKEN"]
        self.folder = pathlib.Path(environment["DATA_DIR"])
        self.folder.mkdir(parents=True, exist_ok=True)
        self.seen = sqlite3.connect(self.folder / "seen.db")
        self.seen.execute("CREATE TABLE IF NOT EXISTS seen (event TEXT PRIMARY KEY)")

    def take(self, channel, method, properties, body):
        """Acknowledges what is done and rejects what never will be. Any other exception ends this
        process: nothing is acknowledged, and the broker gives the message to whoever comes next."""
        try:
            # A long download must not look like a consumer that is gone.
            alive = channel.connection.process_data_events
            said = self.do(method, properties.headers or {}, body, alive)
        except Refused as refused:
            print(f"refused {refused}", flush=True)
            # To the dead letters of the queue, where somebody may look at it.
            channel.basic_reject(method.delivery_tag, requeue=False)
            return
        print(said, flush=True)
        channel.basic_ack(method.delivery_tag)

    def do(self, method, headers, body, alive):
        event = self.verifier.verify(method.exchange, method.routing_key, headers, body)
        if self.seen.execute("SELECT 1 FROM seen WHERE event = ?", [event]).fetchone():
            return f"already seen {event}"
        job = json.loads(body)
        if job["status"] == "completed":
            self.fetch(job, alive)
            said = f"verified job {job['jobId']}: {job['result']['rowCount']} rows, HMAC ok"
        else:
            said = f"failed job {job['jobId']}: {job['metadata']['error'].get('code', '')}"
        with self.seen:
            self.seen.execute("INSERT INTO seen VALUES (?)", [event])
        return said

    def fetch(self, job, alive):
        """Downloads a result beside its place, and puts it there once its HMAC is right."""
        job_id, integrity = job["jobId"], job["result"]["integrity"]
        if integrity["algorithm"] != "HMAC-SHA256":
            raise Refused(f"forged: job {job_id}: an unknown algorithm")
        version = str(integrity.get("keyVersion", 1))
        key = self.keys.get(version)
        if key is None:
            raise Refused(f"unknown key: job {job_id}: integrity.keyVersion is {version}")
        signature = hmac.new(key, digestmod=hashlib.sha256)
        request = urllib.request.Request(f"{self.url}/v1/exports/{job_id}/file")
        # Unredirected: the token is for Outport, not for the object store that it may lead to.
        request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        part = self.folder / f"{job_id}.part"
        try:
            with urllib.request.urlopen(request) as answer, open(part, "wb") as file:
                while chunk := answer.read(CHUNK):
                    signature.update(chunk)
                    file.write(chunk)
                    alive()
                file.flush()
                os.fsync(file.fileno())
        except urllib.error.HTTPError as error:
            if error.code in (404, 410):
                raise Refused(f"gone: job {job_id} has no file") from error
            # Of what went wrong over there, this alone is no better tomorrow.
            if error.code == 500 and code_of(error) == "FILE_DAMAGED":
                why = f"damaged: job {job_id}: its file is not what was written"
                raise Refused(why) from error
            raise
        if not hmac.compare_digest(signature.hexdigest(), integrity["signature"]):
            part.unlink()
            raise Refused(f"forged: job {job_id}: the result is not what was signed")
        part.rename(self.folder / job_id)


def main():
    consumer = Consumer(os.environ)
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    channel = connection.channel()
    # One at a time: without a limit the broker sends all that the queue holds.
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(os.environ["QUEUE"], consumer.take)
    channel.start_consuming()


if __name__ == "__main__":
    main()
