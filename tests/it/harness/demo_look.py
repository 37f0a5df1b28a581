"""Reads what a demo made with readers of other makes and compares it with the sample shop.

Arguments: the shop, the CSV file, the mail. Prints JSON: how many rows, cells of each kind, what
differs, and the mail's parts.
"""

import csv
import email
import email.policy
import html
import json
import re
import sqlite3
import sys

ORGANIZATION = "0197a801-1690-7590-b3cf-19599b9be3e4"
COMPANY = "0197a801-6a42-79aa-9e56-d3c85148c0fa"
QUERY = """
    SELECT code, status, total_amount, created_at, customer_name, note FROM orders
    WHERE organization_id = ? AND company_id = ? AND deleted_at IS NULL
      AND created_at >= '2026-07-01' AND created_at < '2026-07-05'
    ORDER BY created_at, code
"""


def raw_rows(text):
    """Each row as cells of (text, was it quoted), by RFC 4180 alone."""
    rows, row, position = [], [], 0
    while position < len(text):
        if text[position] == '"':
            end = position + 1
            while text[end] != '"' or text[end + 1 : end + 2] == '"':
                end += 2 if text[end] == '"' else 1
            row.append((text[position + 1 : end].replace('""', '"'), True))
            position = end + 1
        else:
            end = re.compile(r"[,\n]|$").search(text, position).start()
            row.append((text[position:end], False))
            position = end
        if text[position : position + 1] == "\n":
            rows.append(row)
            row = []
        position += 1
    return rows


def is_formula(text):
    return text[:1] in tuple("=+-@\t\r\n") and not re.fullmatch(r"[+-]\d+(\.\d+)?", text)


shop, path, mail = sys.argv[1:]
with open(path, encoding="utf-8", newline="") as file:
    text = file.read()
rows = raw_rows(text)
with open(path, encoding="utf-8", newline="") as file:
    read = list(csv.reader(file))
different = []
if [[cell for cell, _ in row] for row in rows] != read:
    different.append("Python's csv reads other texts than RFC 4180 says")

found = {"guarded": 0, "nulls": 0, "empties": 0}
stored = sqlite3.connect(f"file:{shop}?mode=ro", uri=True).execute(
    QUERY, (ORGANIZATION, COMPANY)
).fetchall()
if len(stored) != len(rows) - 1:
    different.append(f"{len(stored)} rows in the shop, {len(rows) - 1} in the file")
for number, (wanted, row) in enumerate(zip(stored, rows[1:])):
    for cell, (shown, quoted) in zip(wanted, row, strict=True):
        if cell is None:
            found["nulls"] += 1
            same = (shown, quoted) == ("", False)
        elif cell == "":
            found["empties"] += 1
            same = (shown, quoted) == ("", True)
        elif is_formula(cell):
            found["guarded"] += 1
            same = (shown, quoted) == ("'" + cell, True)
        else:
            same = shown == cell
        if not same:
            different.append(f"row {number}: {cell!r} is {shown!r}")

with open(mail, "rb") as file:
    message = email.message_from_binary_file(file, policy=email.policy.default)
parts = {part.get_content_type(): part.get_content() for part in message.walk() if not part.is_multipart()}
# In HTML a slash may be written as a reference.
links = {
    kind: re.findall(r"http://[^\s\"<>]+/d/[A-Za-z0-9_-]+", html.unescape(content))
    for kind, content in parts.items()
}
print(
    json.dumps(
        {
            "header": read[0],
            "rows": len(read) - 1,
            **found,
            "different": different[:10],
            "mail": {
                "to": message["To"].addresses[0].addr_spec,
                "subject": message["Subject"],
                "parts": sorted(parts),
                "links": sorted({link for found in links.values() for link in found}),
                "everyPartHasTheLink": all(links.values()),
            },
        }
    )
)
