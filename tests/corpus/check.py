"""Compares files with what the database's own client prints, cell by cell.

    check.py PLAN

The plan is JSON: the engine, where its client finds it, the corpus, and the files with what was
asked for. Prints JSON: for each file how many cells it holds and how often each allowed difference
was seen; and all that is wrong.
"""

import collections
import io
import json
import pathlib
import re
import sys
import tomllib
import zipfile
from xml.etree import ElementTree

HERE = pathlib.Path(__file__).parent
sys.path += [str(HERE), str(HERE.parents[1] / "crates/pipeline/tests/it")]

# The sources stay as they are.
sys.dont_write_bytecode = True

import read_back
import rules
import truth

# As far as it goes: more than any text of the corpus.
read_back.csv.field_size_limit(10_000_000)


def read_csv(file):
    """Cells by Python's reader; which of them are NULL by Arrow's, which sees quotes."""
    import pyarrow.csv

    dialect = {"delimiter": ",", "nullText": "", **file.get("csv", {})}
    bytes_of_file = read_back.plain(file["path"], file["compression"])
    assert bytes_of_file.startswith(b"\xef\xbb\xbf") == dialect.get("bom", False), "the byte order mark"
    text = bytes_of_file.decode("utf-8-sig")
    header, *rows = read_back.csv.reader(io.StringIO(text, newline=""), delimiter=dialect["delimiter"], strict=True)
    table = pyarrow.csv.read_csv(
        io.BytesIO(bytes_of_file),
        read_options=pyarrow.csv.ReadOptions(block_size=len(bytes_of_file) + 1),
        parse_options=pyarrow.csv.ParseOptions(delimiter=dialect["delimiter"], newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: pyarrow.string() for name in header},
            null_values=[dialect["nullText"]],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    by_arrow = [list(row) for row in zip(*(column.to_pylist() for column in table.columns))]
    assert len(by_arrow) == len(rows), "two readers see as many rows"
    for row, other in zip(rows, by_arrow):
        for at, cell in enumerate(other):
            assert cell is None or cell == row[at], f"two readers see the same: {cell!r} {row[at]!r}"
            row[at] = cell
    if file["loadInto"] and file["compression"] == "none":
        by_postgres = truth.loaded(file["loadInto"], file["path"], header, dialect["delimiter"], dialect["nullText"])
        assert by_postgres == rows, "PostgreSQL loads the same"
    return header, rows


def of_objects(objects):
    columns = [key for key, _ in objects[0]]
    assert all([key for key, _ in one] == columns for one in objects), "members differ"
    return columns, [[value for _, value in one] for one in objects]


def read_ndjson(file):
    lines = read_back.plain(file["path"], file["compression"]).split(b"\n")
    assert lines.pop() == b"", "the last line has no end"
    return of_objects([rules.document(line.decode()) for line in lines])


def read_json(file):
    return of_objects(rules.document(read_back.plain(file["path"], file["compression"]).decode()))


def read_xlsx(file):
    """Cells by openpyxl, but moments by their numbers: it rounds them to milliseconds."""
    import openpyxl

    with zipfile.ZipFile(file["path"]) as archive:
        sheet = ElementTree.fromstring(archive.read("xl/worksheets/sheet1.xml"))
    name = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    numbers = {cell.get("r"): cell.findtext(f"{name}v") for cell in sheet.iter(f"{name}c")}
    book = openpyxl.load_workbook(io.BytesIO(read_back.plain(file["path"], "none")))
    # What the standard cannot write as it is, it escapes (ST_Xstring); openpyxl leaves that to us.
    escaped = re.compile("_x([0-9A-Fa-f]{4})_")

    def value(cell):
        assert cell.data_type != "f", "no cell is a formula"
        if cell.is_date:
            return rules.Serial(numbers[cell.coordinate])
        if isinstance(cell.value, str):
            return escaped.sub(lambda found: chr(int(found[1], 16)), cell.value)
        return cell.value

    columns, *rows = [[value(cell) for cell in row] for row in book.worksheets[0].iter_rows()]
    return columns, rows


def read_parquet(file):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(file["path"])
    columns = []
    for column in table.columns:
        # Days and instants as their numbers: not all are of Python's calendar.
        if pyarrow.types.is_timestamp(column.type):
            assert column.type.unit == "us"
            column = column.cast(pyarrow.int64())
        elif pyarrow.types.is_date32(column.type):
            column = column.cast(pyarrow.int32())
        columns.append(column.to_pylist())
    return table.column_names, list(zip(*columns))


READ = {"CSV": read_csv, "NDJSON": read_ndjson, "JSON": read_json, "XLSX": read_xlsx, "PARQUET": read_parquet}


def check(file, columns, cells):
    """Differences that no rule allows, the rules used, and how many cells were compared."""
    used, wrong, compared = collections.Counter(), [], 0
    header, rows = READ[file["format"]](file)
    if list(header) != file["columns"]:
        return [f"the header is {header}"], used, 0
    if len(rows) != len(cells):
        return [f"{len(rows)} rows instead of {len(cells)}"], used, 0
    for number, (row, expected) in enumerate(zip(rows, cells), 1):
        if str(row[0]) != str(number):
            wrong.append(f"row {number} has the id {row[0]}")
        for key, read in zip(file["columns"][1:], row[1:]):
            compared += 1
            cell, column = expected[key], columns[key]
            if cell is None:
                holds = read is None
            else:
                # Twice in one cell is once in the job's count.
                once = set()
                text = rules.carried(cell, column, file["timeZone"], once.add)
                holds = rules.HOLDS[file["format"]](read, text, column, file, once.add)
                used.update(once)
            if not holds:
                wrong.append(f"{key} ({column['sql']}), row {number}: {cell!r:.200} became {read!r:.200}")
    for rule, warning in (("guard", "guardedCells"), ("replaced", "replacedCells")):
        if used[rule] != file["warnings"][warning]:
            wrong.append(f"{warning} is {file['warnings'][warning]}, but {used[rule]} cells were changed")
    return wrong, used, compared


def main():
    plan = json.loads(pathlib.Path(sys.argv[1]).read_text())
    corpus = tomllib.loads(pathlib.Path(plan["corpus"]).read_text())
    columns = {column["key"]: column for column in corpus["columns"] if column.get("only", plan["engine"]) == plan["engine"]}
    printed = {}
    for zone in {file["timeZone"] for file in plan["files"]}:
        rows = truth.of(plan["engine"], plan["url"], zone, list(columns.values()))
        printed[zone] = [dict(zip(columns, row, strict=True)) for row in rows]
    told, wrong, seen = [], [], set()
    for file in plan["files"]:
        asked = [file["format"], file["compression"], file["timeZone"], json.dumps(file.get("csv", {}))]
        name = f"{' '.join(asked)} {len(file['columns'])} columns"
        file["loadInto"] = plan["url"] if plan["engine"] == "postgres" else None
        faults, used, compared = check(file, columns, printed[file["timeZone"]])
        wrong += [f"{name}: {fault}" for fault in faults]
        seen |= set(used)
        told.append({"file": name, "cells": compared, "differences": dict(sorted(used.items()))})
    for rule, engines in rules.DIFFERENCES.items():
        if (plan["engine"] in engines) != (rule in seen):
            wrong.append(f"the difference '{rule}' was {'seen' if rule in seen else 'never seen'}")
    assert seen <= set(rules.DIFFERENCES), "every difference is listed"
    values = sum(cell is not None for row in printed[file["timeZone"]] for cell in row.values())
    json.dump({"values": values, "files": told, "wrong": wrong}, sys.stdout, ensure_ascii=False)


main()
