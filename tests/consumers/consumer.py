"""A consumer of job events: believes what Outport signed, does each job once, and keeps what it
has downloaded and verified in DATA_DIR.

Told by AMQP_URL, QUEUE, EXTERNAL_HMAC_KEYS ("1:<hex>", several separated by commas), OUTPORT_URL,
OUTPORT_TOKEN, DATA_DIR, and MOST_AGE_SECONDS where old messages are to be refused.
"""

import hashlib
import hmac
import http.client
import json
import os
import pathlib
import re
import sqlite3
import sys
import time
import urllib.error
import urllib.request

import pika

EVENTS = {"job.completed", "job.failed"}
JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DIGITS = re.compile(r"[0-9a-f]{64}")
CHUNK = 64 * 1024
# Seconds for which Outport may be silent.
PATIENCE = 60


class Refused(Exception):
    """It, or its result, is not what Outport signed, not readable or not to be had: it is never
    done, and set aside."""


def decimal(text, below):
    """The number that a text is, None where it is none. One number has one text: int() alone takes
    signs, blanks, leading zeros, underscores and the digits of other scripts."""
    number = int(text) if re.fullmatch(r"0|[1-9][0-9]{0,19}", text) else below
    return number if number < below else None


def read_keys(text):
    """The external keys by version."""
    keys = {}
    for entry in text.split(","):
        version, _, digits = entry.strip().partition(":")
        number = decimal(version, 1 << 16)
        if number is None or not DIGITS.fullmatch(digits):
            raise ValueError("a key is <version>:<64 hex digits>")
        keys[number] = bytes.fromhex(digits)
    return keys


def member(value, *names):
    """What a JSON value holds under these names, one in the other; None where it has it not."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def whole(text):
    """A whole number of a body. What is longer than any that is used stays the text that it is:
    int() takes no more than 4300 digits."""
    return int(text) if len(text) <= 20 else text


def no_json(word):
    """NaN and the infinities, which json takes otherwise."""
    raise ValueError(f"{word} is no JSON")


def read_job(body, routing_key, job_id):
    """What a body tells of the job that it is signed for."""
    try:
        # As a text: of bytes, json takes UTF-16, UTF-32 and a byte order mark, too.
        job = json.loads(body.decode(), parse_int=whole, parse_constant=no_json)
    except (ValueError, RecursionError) as error:
        raise Refused(f"unreadable: job {job_id}: {error}") from error
    if (member(job, "jobId"), f"job.{member(job, 'status')}") != (job_id, routing_key):
        raise Refused(f"unreadable: job {job_id}: its body tells of another event")
    if "metadata" not in job:
        raise Refused(f"unreadable: job {job_id}: it has no metadata")
    if routing_key == "job.failed":
        return job
    result, integrity = member(job, "result"), member(job, "result", "integrity")
    if not isinstance(integrity, dict):
        raise Refused(f"unreadable: job {job_id}: it has no result.integrity")
    # Some producers leave a zero out.
    rows, version = result.setdefault("rowCount", 0), integrity.setdefault("keyVersion", 1)
    fits = [
        # A bool is an int to Python.
        type(rows) is int and 0 <= rows < 1 << 64,
        type(version) is int and 0 <= version < 1 << 16,
        isinstance(integrity.get("algorithm"), str),
        isinstance(integrity.get("signature"), str),
    ]
    if not all(fits):
        raise Refused(f"unreadable: job {job_id}: a member is of another type")
    return job


def read_some(answer):
    """The next bytes of an answer, none at its end; None where it breaks off."""
    try:
        return answer.read1(CHUNK)
    except (OSError, http.client.HTTPException):
        return None


def code_of(answer):
    """The code of an answer that is a problem."""
    try:
        return member(json.load(answer), "code")
    except ValueError:
        return None


class Verifier:
    """Both signatures of a message, and that they speak of one event."""

    def __init__(self, keys, most_age=None):
        self.keys = keys
        self.most_age = most_age

    def verify(self, exchange, routing_key, headers, body):
        """The id of a genuine event, by which one that comes again is known; and its job's."""

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

        version = 1
        if "x-signature-key" in headers:
            version = decimal(header("x-signature-key"), 1 << 16)
        if version is None:
            raise Refused("forged: the header x-signature-key must be a key's version in decimal")
        key = self.keys.get(version)
        if key is None:
            raise Refused(f"unknown key: x-signature-key is {version}")
        signed_at, form = header("t"), header("signature-version")
        tenant, job = header("X-Tenant-ID"), header("ce-subject")
        if form != "v1" or routing_key not in EVENTS or not JOB.fullmatch(job):
            raise Refused("forged: it has not the form of a job event")
        seconds = decimal(signed_at, 1 << 64)
        if seconds is None:
            raise Refused("forged: the header t must be Unix seconds in decimal")

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
        age = int(time.time()) - seconds
        if self.most_age is not None and age > self.most_age:
            raise Refused(f"stale: it was signed {age} s ago")
        return event, job


class Consumer:
    """Does what messages ask for."""

    def __init__(self, environment):
        self.keys = read_keys(environment["EXTERNAL_HMAC_KEYS"])
        most_age = None
        if "MOST_AGE_SECONDS" in environment:
            most_age = decimal(environment["MOST_AGE_SECONDS"], 1 << 64)
            if most_age is None:
                raise ValueError("MOST_AGE_SECONDS must be a number in decimal")
        self.verifier = Verifier(self.keys, most_age)
        self.url, self.token = environment["OUTPORT_URL"], environment["OUTPORT_TOKEN"]
        self.folder = pathlib.Path(environment["DATA_DIR"])
        self.folder.mkdir(parents=True, exist_ok=True)
        self.seen = sqlite3.connect(self.folder / "seen.db")
        self.seen.execute("CREATE TABLE IF NOT EXISTS seen (event TEXT PRIMARY KEY)")

    def take(self, channel, method, properties, body):
        """Acknowledges what is done and sets aside what never will be. Any other exception ends
        this process: nothing is acknowledged, and the broker gives the message to whoever comes
        next."""
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
        routing_key = method.routing_key
        event, job_id = self.verifier.verify(method.exchange, routing_key, headers, body)
        if self.seen.execute("SELECT 1 FROM seen WHERE event = ?", [event]).fetchone():
            return f"already seen {event}"
        job = read_job(body, routing_key, job_id)
        if routing_key == "job.completed":
            self.fetch(job_id, job["result"]["integrity"], alive)
            said = f"verified job {job_id}: {job['result']['rowCount']} rows, HMAC ok"
        else:
            code = member(job, "metadata", "error", "code")
            said = f"failed job {job_id}: {code if isinstance(code, str) else ''}"
        with self.seen:
            self.seen.execute("INSERT INTO seen VALUES (?)", [event])
        return said

    def fetch(self, job_id, integrity, alive):
        """Downloads a result beside its place, and puts it there once its HMAC is right."""
        if integrity["algorithm"] != "HMAC-SHA256" or not DIGITS.fullmatch(integrity["signature"]):
            raise Refused(f"forged: job {job_id}: no signature of this algorithm")
        version = integrity["keyVersion"]
        key = self.keys.get(version)
        if key is None:
            raise Refused(f"unknown key: job {job_id}: integrity.keyVersion is {version}")
        signature = hmac.new(key, digestmod=hashlib.sha256)
        part = self.folder / f"{job_id}.part"
        try:
            with open(part, "wb") as file:
                for chunk in self.download(job_id):
                    signature.update(chunk)
                    file.write(chunk)
                    alive()
                file.flush()
                os.fsync(file.fileno())
            if not hmac.compare_digest(signature.hexdigest(), integrity["signature"]):
                raise Refused(f"forged: job {job_id}: the result is not what was signed")
        except Refused:
            part.unlink()
            raise
        part.rename(self.folder / job_id)

    def download(self, job_id):
        """The bytes of a result as they come."""
        received, size = 0, None
        # An answer that ends before its time is no error to http.client, and one may break off
        # behind the last byte: what counts is the size, where it is told.
        while received != size:
            before = received
            answer = self.open(job_id, received)
            if answer is None:
                return
            with answer:
                length = answer.headers["Content-Length"]
                size = size if length is None else received + int(length)
                while chunk := read_some(answer):
                    received += len(chunk)
                    yield chunk
            if size is None and chunk is not None:
                return
            # So ends a connection that breaks, and a file that is damaged further on. Asked for
            # the rest, Outport gives it, or says what is wrong with it.
            if received == before != size:
                raise ConnectionError(f"job {job_id}: the download breaks off")

    def open(self, job_id, start):
        """The answer that brings a result from a byte on, None where the result ends there."""
        request = urllib.request.Request(f"{self.url}/v1/exports/{job_id}/file")
        # Unredirected: the token is for Outport, not for the object store that it may lead to.
        request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        if start:
            request.add_header("Range", f"bytes={start}-")
        try:
            answer = urllib.request.urlopen(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            if error.code == 416 and error.headers["Content-Range"] == f"bytes */{start}":
                return None
            code = code_of(error)
            if error.code in (404, 410):
                raise Refused(f"gone: job {job_id} has no file") from error
            if error.code == 500 and code == "FILE_DAMAGED":
                why = f"damaged: job {job_id}: its file is not what was written"
                raise Refused(why) from error
            # Not of this file alone: without a valid token, too slow, too often.
            if error.code < 500 and error.code not in (401, 408, 416, 429) and code is not None:
                raise Refused(f"not given: job {job_id}: {code}") from error
            raise
        if answer.status != (206 if start else 200):
            raise ConnectionError(f"job {job_id}: Outport answers {answer.status}")
        return answer


def main():
    # What is told may hold what this terminal cannot show.
    sys.stdout.reconfigure(errors="backslashreplace")
    consumer = Consumer(os.environ)
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    channel = connection.channel()
    # One at a time: without a limit the broker sends all that the queue holds.
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(os.environ["QUEUE"], consumer.take)
    channel.start_consuming()
    sys.exit("the broker closed the queue")


if __name__ == "__main__":
    main()
