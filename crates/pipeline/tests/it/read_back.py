"""Reads a file with libraries that are not ours and prints what they see.

    read_back.py FORMAT FILE [COMPRESSION [DELIMITER]]
    read_back.py     for each line of standard input, which is a JSON array of the same

Prints JSON, on one line for each file: {"columns": […], "rows": [[…]], "about": {…}}; each cell is `type:value`, so that a
number is told from a text that looks like it.
"""

import csv
import datetime
import gzip
import io
import json
import sys


def shown(value):
    kind = type(value).__name__
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return f"{kind}:{value.isoformat()}"
    if isinstance(value, bytes):
        return f"{kind}:{value.hex()}"
    if isinstance(value, (dict, list)):
        return f"{kind}:{json.dumps(value, ensure_ascii=False)}"
    return f"{kind}:{value}"


def plain(path, compression):
    if compression == "gzip":
        with gzip.open(path) as file:
            return file.read()
    if compression == "zstd":
        import pyarrow

        with pyarrow.input_stream(path, compression="zstd") as stream:
            return stream.read()
    with open(path, "rb") as file:
        return file.read()


def of_objects(objects):
    columns = list(objects[0]) if objects else []
    assert all(list(one) == columns for one in objects), "members differ"
    return columns, [list(one.values()) for one in objects], {}


def read_csv(path, compression, delimiter=","):
    text = plain(path, compression).decode("utf-8-sig")
    columns, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    return columns, rows, {}


def read_ndjson(path, compression):
    lines = plain(path, compression).decode().split("\n")
    assert lines.pop() == "", "the last line has no end"
    return of_objects([json.loads(line) for line in lines])


def read_json(path, compression):
    return of_objects(json.loads(plain(path, compression)))


def read_xlsx(path, _):
    import openpyxl

    # By its bytes: the name does not end like that of a workbook.
    book = openpyxl.load_workbook(io.BytesIO(plain(path, "none")))
    (sheet,) = book.worksheets
    columns, *rows = sheet.iter_rows(values_only=True)
    quoted = [cell.coordinate for row in sheet.iter_rows(min_row=2) for cell in row if cell.quotePrefix]
    formulas = [cell.coordinate for row in sheet.iter_rows() for cell in row if cell.data_type == "f"]
    about = {"title": sheet.title, "frozen": sheet.freeze_panes, "quoted": quoted, "formulas": formulas}
    return columns, rows, about


def read_parquet(path, _):
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(path)
    table = file.read()
    about = {"types": [str(field.type) for field in table.schema], "groups": file.num_row_groups}
    columns = [column.to_pylist() for column in table.columns]
    return table.column_names, list(zip(*columns)), about


def seen(form, path, compression="none", delimiter=None):
    read = {"csv": read_csv, "ndjson": read_ndjson, "json": read_json, "xlsx": read_xlsx, "parquet": read_parquet}
    dialect = [delimiter] if form == "CSV" and delimiter else []
    columns, rows, about = read[form.lower()](path, compression, *dialect)
    rows = [[shown(cell) for cell in row] for row in rows]
    return {"columns": list(columns), "rows": rows, "about": about}


def main():
    asked = [sys.argv[1:]] if sys.argv[1:] else map(json.loads, sys.stdin)
    for one in asked:
        print(json.dumps(seen(*one)))


if __name__ == "__main__":
    main()
