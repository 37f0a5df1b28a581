"""What the databases' own clients print.

Each function gives rows of cells in the order of `id`. A cell is None for NULL, or a kind and a
value: `text` (bytes, as printed), `integer`, `float` (a double, and of how many bits its column
is), `bytes`, or `instant` (the UTC time as printed).
"""

import os
import re
import sqlite3
import struct
import subprocess
from urllib.parse import urlsplit


def of(engine, url, zone, columns):
    clients = {"postgres": of_postgres, "mariadb": of_mariadb, "mysql": of_mariadb, "sqlite": of_sqlite}
    return clients[engine](url, zone, columns)


def said(command, statements, environment):
    done = subprocess.run(command, input=statements.encode(), env={**os.environ, **environment}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def asked(column, quoted):
    return column.get("client", "{}").format(quoted)


def of_postgres(url, zone, columns):
    settings = {
        "TimeZone": zone,
        "DateStyle": "ISO",
        "IntervalStyle": "postgres",
        "bytea_output": "hex",
        "lc_monetary": "C",
        "client_encoding": "UTF8",
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    selected = ", ".join(asked(column, f'"{key}"') for key, column in ((column["key"], column) for column in columns))
    # Over a pipe psql copies its own text form of COPY, which loses nothing.
    statement = f"COPY (SELECT {selected} FROM hard.cells ORDER BY id) TO STDOUT"
    # What the tests' own library adds to a URL, psql does not know.
    bare = url.split("?")[0]
    printed = said(["psql", "-X", "-A", "-t", "-q", "-w", "-d", bare], statement, {"PGOPTIONS": options})
    return [[of_copied(cell) for cell in line.split(b"\t")] for line in printed.split(b"\n")[:-1]]


def loaded(url, path, columns, delimiter, null):
    """What PostgreSQL makes of an uncompressed CSV file: rows of texts and None."""
    names = ", ".join(f'"{column}" text' for column in columns)
    statements = f"""
        CREATE TEMP TABLE loaded ({names});
        \\copy loaded FROM '{path}' (FORMAT csv, HEADER, DELIMITER '{delimiter}', NULL '{null}', ENCODING 'UTF8')
        COPY loaded TO STDOUT;
    """
    environment = {"PGCLIENTENCODING": "UTF8"}
    printed = said(["psql", "-X", "-q", "-w", "-v", "ON_ERROR_STOP=1", "-d", url.split("?")[0]], statements, environment)
    rows = [[of_copied(cell) for cell in line.split(b"\t")] for line in printed.split(b"\n")[:-1]]
    return [[cell and cell[1].decode() for cell in row] for row in rows]


def of_copied(cell):
    if cell == rb"\N":
        return None
    escapes = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v", b"\\": b"\\"}
    return "text", re.sub(rb"\\(.)", lambda found: escapes[found[1]], cell, flags=re.DOTALL)


def of_mariadb(url, _, columns):
    where = urlsplit(url)
    command = ["mariadb", "--no-defaults", "--batch", "--skip-column-names", "--default-character-set=utf8mb4"]
    command += ["-h", where.hostname, "-P", str(where.port or 3306), "-u", where.username, where.path.strip("/")]
    names = [f"`{column['key']}`" for column in columns]
    selected = ", ".join(f"{name} IS NULL, {asked(column, name)}" for column, name in zip(columns, names))
    statements = f"SET time_zone = '+00:00'; SELECT {selected} FROM cells ORDER BY id;"
    printed = said(command, statements, {"MYSQL_PWD": where.password or ""})
    rows = []
    for line in printed.split(b"\n")[:-1]:
        cells = [of_batch(cell) for cell in line.split(b"\t")]
        rows.append([of_shown(*pair) for pair in zip(columns, cells[::2], cells[1::2], strict=True)])
    return rows


def of_batch(cell):
    escapes = {b"n": b"\n", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}
    return re.sub(rb"\\(.)", lambda found: escapes[found[1]], cell, flags=re.DOTALL)


def of_shown(column, is_null, cell):
    if is_null == b"1":
        return None
    match column.get("prints", "text"):
        case "float":
            return "float", float(cell), 32
        case "hex":
            return "bytes", bytes.fromhex(cell.decode())
        case kind:
            return kind, cell


def of_sqlite(path, _, columns):
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    selected = ", ".join(f'typeof("{key}"), "{key}"' for key in (column["key"] for column in columns))
    rows = []
    for row in connection.execute(f"SELECT {selected} FROM cells ORDER BY id"):
        rows.append([of_stored(*pair) for pair in zip(row[::2], row[1::2], strict=True)])
    return rows


def of_stored(storage, value):
    match storage:
        case b"null":
            return None
        case b"real":
            return "float", value, 64
        case b"blob":
            return "bytes", value
        case b"integer":
            return "text", str(value).encode()
        case b"text":
            return "text", value


def shortest(value, bits):
    """The fewest digits that read back as the same float."""
    if bits == 64:
        return repr(value)
    narrow = lambda number: struct.unpack("f", struct.pack("f", number))[0]
    assert narrow(value) == value, "no float of 32 bits"
    return next(text for text in (f"{value:.{digits}g}" for digits in range(1, 18)) if narrow(float(text)) == value)
