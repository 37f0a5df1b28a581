"""Recomputes the signatures of a message as a consumer of another make does: standard library alone.

Reads one JSON object {key, exchange, routingKey, headers, body} from standard input, key in hex and
body in base64. Prints {message, attributes, changed}: whether the two signatures hold, and whether
the first one still holds when one signed part is changed.
"""

import base64
import hashlib
import hmac
import json
import sys

PARTS = ["t", "version", "tenant", "jobId", "exchange", "routingKey", "body"]


def mac(key, parts):
    return hmac.new(key, b"\n".join(parts), hashlib.sha256).hexdigest()


def main():
    given = json.load(sys.stdin)
    key, headers = bytes.fromhex(given["key"]), given["headers"]
    body = base64.b64decode(given["body"])
    signed = {
        "t": headers["t"],
        "version": headers["signature-version"],
        "tenant": headers["X-Tenant-ID"],
        "jobId": json.loads(body)["jobId"],
        "exchange": given["exchange"],
        "routingKey": given["routingKey"],
    }
    values = {name: value.encode() for name, value in signed.items()}
    values["body"] = body

    def holds(values):
        computed = mac(key, [values[name] for name in PARTS])
        return hmac.compare_digest(computed, headers["x-message-signature"])

    names = ["ce-id", "ce-type", "ce-source", "ce-time", "ce-tenantid"]
    attributes = mac(key, [headers[name].encode() for name in names])
    changed = {name: holds({**values, name: values[name] + b"1"}) for name in PARTS}
    answer = {
        "message": holds(values),
        "attributes": hmac.compare_digest(attributes, headers["x-attributes-signature"]),
        "changed": changed,
    }
    json.dump(answer, sys.stdout)


main()
