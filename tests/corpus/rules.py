"""What a file must hold of a cell, by the rules of crates/domain/RULES.md (8 to 12, 16, 19 to 21),
written a second time and from the rules alone. README.md here lists every allowed difference
between what the client prints and what the file holds; each has its name here.
"""

import base64
import datetime
import json
import math
import re
import uuid
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import truth

NUMERIC = {"integer", "decimal", "float"}
TEMPORAL = {"date", "localTimestamp", "timestamp", "time"}
LARGEST_EXACT = 2**53 - 1
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
MOMENT = re.compile(
    r"(\d{4,})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6})0*)?)?(Z|[+-]\d\d(?::\d\d){0,2})?)?( BC)?"
)
SHORTEST = re.compile(r"-?(0|[1-9][0-9]*)(\.(0|[0-9]*[1-9]))?([eE][+-]?[0-9]+)?")
CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?")

# Every allowed difference, and the engines whose corpus must show it: README.md says what it is.
EVERYWHERE = {"postgres", "mariadb", "mysql", "sqlite"}
DIFFERENCES = {
    "replaced": {"mariadb", "mysql", "sqlite"},
    "float": {"mariadb", "mysql", "sqlite"},
    "hex": {"mariadb", "mysql", "sqlite"},
    "uuid": {"mariadb", "mysql", "sqlite"},
    "instant": {"mariadb", "mysql"},
    "nested": {"postgres"},
    "guard": EVERYWHERE,
    "base64": EVERYWHERE,
    # MySQL keeps the document, not its text.
    "one_line": EVERYWHERE - {"mysql"},
    "null_document": EVERYWHERE,
    "as_text": EVERYWHERE,
    "clock": EVERYWHERE,
    "double": EVERYWHERE,
}


class Shortest:
    """A float: any text will do that is a number of exactly its shortest digits."""

    def __init__(self, value, bits):
        self.value = value
        self.digits = truth.shortest(value, bits)

    def __repr__(self):
        return f"Shortest({self.digits})"

    def is_said_by(self, text):
        if math.isinf(self.value):
            return text == ("Infinity" if self.value > 0 else "-Infinity")
        same_sign = text.startswith("-") == self.digits.startswith("-")
        return bool(SHORTEST.fullmatch(text)) and same_sign and Decimal(text) == Decimal(self.digits)


class Number(str):
    """A number of a JSON document, by its digits."""


class Members(list):
    """The members of a JSON object in their order."""


def document(text):
    def refuse(constant):
        raise ValueError(constant)

    return json.loads(
        text, parse_int=Number, parse_float=Number, parse_constant=refuse, object_pairs_hook=Members
    )


def same(one, other):
    """Equal in type and value."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, float) and one == 0:
        return type(other) is float and other == 0 and math.copysign(1, one) == math.copysign(1, other)
    return type(one) is type(other) and one == other


def carried(cell, column, zone, used):
    """The text that goes into the file, before its format has a say."""
    kind, value, *more = cell
    if "to_json" in column.get("client", ""):
        used("nested")
    match kind:
        case "float":
            used("float")
            return Shortest(value, *more)
        case "instant":
            return of_instant(value.decode(), zone, used)
        case "uuid":
            used("uuid")
            return str(uuid.UUID(value.decode()))
        case "bytes" if column["type"] == "uuid" and len(value) == 16:
            used("uuid")
            return str(uuid.UUID(bytes=value))
        case "bytes":
            used("hex")
            return f"\\x{value.hex()}"
    text = value.decode(errors="replace").replace("\0", "\ufffd")
    if text.encode() != value:
        used("replaced")
    return text


def of_instant(text, zone, used):
    if text.startswith("0000"):
        return text
    used("instant")
    whole, dot, fraction = text.partition(".")
    utc = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.UTC)
    local = utc.astimezone(ZoneInfo(zone))
    offset = local.strftime("%z")
    return f"{local:%Y-%m-%d %H:%M:%S}{dot}{fraction}{offset[:3]}" + (f":{offset[3:5]}" if offset[3:5] != "00" else "")


# --- CSV ---


def guarded(text, column_type):
    """Rule 16."""
    if not text or text[0] not in "=+-@\t\r\n":
        return text
    if column_type in NUMERIC | TEMPORAL:
        harmless = re.fullmatch(r"[A-Za-z0-9 .:+$,-]*", text)
    else:
        harmless = re.fullmatch(r"[+-][0-9]+(\.[0-9]+)?", text)
    return text if harmless else f"'{text}"


def csv_holds(read, text, column, file, used):
    if read is None:
        return False
    guard = (lambda text: guarded(text, column["type"])) if file["resource"] == "guarded" else (lambda text: text)
    if isinstance(text, Shortest):
        bare = read.removeprefix("'")
        holds = text.is_said_by(bare) and guard(bare) == read
        is_guarded = bare != read
    else:
        holds = read == guard(text)
        is_guarded = guard(text) != text
    if is_guarded:
        used("guard")
    return holds


# --- NDJSON and JSON ---


def json_holds(read, text, column, _, used):
    """Rule 19."""
    if isinstance(text, Shortest):
        if column["type"] == "float" and not math.isinf(text.value):
            return type(read) is Number and text.is_said_by(read)
        used("as_text")
        # In a column for documents a number is one.
        is_kind = Number if column["type"] == "json" else str
        return type(read) is is_kind and text.is_said_by(read)
    match column["type"]:
        case "integer" if INTEGER.fullmatch(text) and abs(int(text)) <= LARGEST_EXACT:
            return same(read, Number(text))
        case "float" if NUMBER.fullmatch(text):
            return same(read, Number(text))
        case "boolean" if of_boolean(text) is not None:
            return same(read, of_boolean(text))
        case "binary":
            used("base64")
            return same(read, base64.b64encode(of_binary(text)).decode())
        case "json":
            try:
                value = document(text)
            except ValueError:
                return same(read, text)
            if "\n" in text or "\r" in text:
                used("one_line")
            if value is None:
                used("null_document")
            return same(read, value)
        case "integer" | "decimal" | "float" | "boolean":
            used("as_text")
    return same(read, text)


def of_boolean(text):
    return {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}.get(text)


def of_binary(text):
    hexadecimal = re.fullmatch(r"\\x((?:[0-9a-fA-F]{2})*)", text)
    return bytes.fromhex(hexadecimal[1]) if hexadecimal else text.encode()


# --- XLSX ---


def xlsx_holds(read, text, column, file, used):
    """Rule 20."""
    if isinstance(text, Shortest):
        if column["type"] in NUMERIC and is_number_of_a_sheet(text.digits, column["type"]):
            return type(read) in (int, float) and float(read) == float(text.digits)
        used("as_text")
        return type(read) is str and text.is_said_by(read)
    match column["type"]:
        case "integer" | "decimal" | "float":
            if is_number_of_a_sheet(text, column["type"]):
                return type(read) in (int, float) and float(read) == float(text)
        case "boolean":
            if of_boolean(text) is not None:
                return same(read, of_boolean(text))
        case "date":
            day = moment(text)
            if day and day[1] is None and "T" not in text and " " not in text.removesuffix(" BC") and of_sheet(day[0]):
                return shows(read, day[0], DAY_ZERO, used)
        case "localTimestamp":
            local = moment(text)
            if local and local[1] is None and of_sheet(local[0]):
                return shows(read, local[0], DAY_ZERO, used)
        case "timestamp":
            local = moment(text)
            if local and of_sheet(local[0]) and clock_tells(local[0], local[1] or 0, file["timeZone"]):
                used("clock")
                return shows(read, local[0], DAY_ZERO, used)
        case "time":
            clock = time_of_day(text)
            if clock is not None:
                return shows(read, clock, 0, used)
        case _:
            return same(read, text)
    used("as_text")
    return same(read, text)


def is_number_of_a_sheet(text, column_type):
    if not NUMBER.fullmatch(text) or math.isinf(float(text)):
        return False
    mantissa = re.split("[eE]", text.removeprefix("-"))[0]
    significant = len(mantissa.replace(".", "").strip("0"))
    is_normal = float(text) == 0 or abs(float(text)) >= 2.2250738585072014e-308
    return is_normal and (column_type == "float" or significant <= 15)


def of_sheet(micros):
    """Whether it is a day of the sheet's calendar, also as the double that it becomes."""
    serial = float(Fraction(micros - DAY_ZERO, 86_400_000_000))
    return micros_of(1900, 3, 1) <= micros and serial < LAST_DAY + 1 and math.floor(serial) == (micros - DAY_ZERO) // 86_400_000_000


def clock_tells(micros, offset, zone):
    """Whether the zone's clock shows this once, at this offset from UTC."""
    shown = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)
    offsets = {shown.replace(tzinfo=ZoneInfo(zone), fold=fold).utcoffset().total_seconds() for fold in (0, 1)}
    return offsets == {offset}


class Serial(float):
    """A cell that shows a moment: days since 1899-12-30, or of a day."""


def shows(read, micros, since, used):
    """Whether a cell holds a moment as exactly as a double can."""
    if type(read) is not Serial:
        return False
    exact = Fraction(micros - since, 86_400_000_000)
    if Fraction(read) != exact:
        used("double")
    return abs(Fraction(read) - exact) <= Fraction(math.ulp(read)) and math.floor(read) == math.floor(exact)


# --- Parquet ---


def parquet_holds(read, text, column, _, used):
    """Rule 21."""
    if isinstance(text, Shortest):
        if column["type"] == "float":
            return same(read, float(text.digits))
        used("as_text")
        return type(read) is str and text.is_said_by(read)
    match column["type"]:
        case "integer":
            return same(read, int(text))
        case "decimal" if "precision" in column:
            exact = Decimal(text).scaleb(column["scale"])
            return type(read) is Decimal and read.scaleb(column["scale"]) == exact and exact == int(exact)
        case "float":
            return same(read, float(text))
        case "boolean":
            return same(read, of_boolean(text))
        case "date":
            return same(read, moment(text)[0] // 86_400_000_000)
        case "localTimestamp":
            return same(read, moment(text)[0])
        case "timestamp":
            local, offset = moment(text)
            return same(read, local - (offset or 0) * 1_000_000)
        case "binary":
            return same(read, of_binary(text))
        case "decimal":
            used("as_text")
    return same(read, text)


# --- Moments, beyond what Python's own calendar holds ---


def micros_of(year, month, day, hour=0, minute=0, second=0, micro=0):
    """Microseconds since 1970 in the Gregorian calendar of all times; the year before 1 is 0."""
    # The calendar repeats itself every 400 years.
    cycles, year = divmod(year - 2000, 400)
    days = datetime.date(2000 + year, month, day).toordinal() - datetime.date(1970, 1, 1).toordinal() + cycles * 146_097
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micro


def moment(text):
    """Local microseconds since 1970, and the offset in seconds if the text has one."""
    parts = MOMENT.fullmatch(text)
    if not parts:
        return None
    year, month, day, hour, minute, second, fraction, offset, before_christ = parts.groups()
    year = 1 - int(year) if before_christ else int(year)
    try:
        local = micros_of(year, int(month), int(day), *map(int, (hour or 0, minute or 0, second or 0)))
    except ValueError:
        return None
    if int(hour or 0) > 23 or int(minute or 0) > 59 or int(second or 0) > 59:
        return None
    return local + int((fraction or "0").ljust(6, "0")), seconds_of(offset)


def seconds_of(offset):
    if offset in (None, "Z"):
        return offset and 0
    parts = [int(part) for part in offset[1:].split(":")] + [0, 0]
    return (parts[0] * 3600 + parts[1] * 60 + parts[2]) * (-1 if offset[0] == "-" else 1)


def time_of_day(text):
    parts = CLOCK.fullmatch(text)
    if not parts or int(parts[1]) > 23 or int(parts[2]) > 59 or int(parts[3] or 0) > 59:
        return None
    whole = (int(parts[1]) * 60 + int(parts[2])) * 60 + int(parts[3] or 0)
    return whole * 1_000_000 + int((parts[4] or "0").ljust(6, "0"))


DAY_ZERO = micros_of(1899, 12, 30)
LAST_DAY = (micros_of(9999, 12, 31) - DAY_ZERO) // 86_400_000_000

HOLDS = {"CSV": csv_holds, "NDJSON": json_holds, "JSON": json_holds, "XLSX": xlsx_holds, "PARQUET": parquet_holds}
