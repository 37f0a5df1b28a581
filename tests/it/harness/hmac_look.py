"""Signs a file from the master key as RFC 5869 and RFC 2104 say it: {externalKey, hmac}."""

import base64
import hashlib
import hmac
import json
import sys

master, path = sys.argv[1:]


def sign(key, message):
    return hmac.new(key, message, hashlib.sha256).digest()


pseudorandom = sign(bytes(32), base64.b64decode(master))
external = sign(pseudorandom, b"fetcher-external-hmac-v1" + bytes([1]))
with open(path, "rb") as file:
    print(json.dumps({"externalKey": external.hex(), "hmac": sign(external, file.read()).hex()}))
