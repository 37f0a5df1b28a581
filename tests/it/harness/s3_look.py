"""Makes a bucket or says what is in it, over boto3: {objects: [[key, sha256]], uploads: [key]}."""

import hashlib
import json
import sys

import boto3
from botocore.config import Config

command, endpoint, bucket = sys.argv[1:]
s3 = boto3.client(
    "s3",
    endpoint_url=endpoint,
    region_name="us-east-1",
    aws_access_key_id="AKTESTACCESSKEYID",
    aws_secret_access_key="the-secret-that-nobody-may-see",
    config=Config(s3={"addressing_style": "path"}),
)
if command == "make":
    s3.create_bucket(Bucket=bucket)
    print("{}")
else:
    objects = []
    for entry in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
        body = s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"]
        objects.append([entry["Key"], hashlib.sha256(body.read()).hexdigest()])
    uploads = s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    print(json.dumps({"objects": objects, "uploads": [upload["Key"] for upload in uploads]}))
