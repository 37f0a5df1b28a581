-- The table of orders.sql, for SQLite, filled with the CSV at the standard input.
PRAGMA synchronous = OFF;
CREATE TABLE orders (
    id integer PRIMARY KEY,
    code text NOT NULL,
    status text NOT NULL,
    total_amount numeric NOT NULL,
    created_at text NOT NULL,
    customer_name text NOT NULL,
    note text,
    organization_id text NOT NULL,
    company_id text NOT NULL
);
-- The shell of SQLite knows no NULL in a CSV, and no note is empty.
CREATE TEMP VIEW lines AS SELECT * FROM orders;
CREATE TEMP TRIGGER line INSTEAD OF INSERT ON lines BEGIN
    INSERT INTO orders VALUES (NEW.id, NEW.code, NEW.status, NEW.total_amount, NEW.created_at,
        NEW.customer_name, nullif(NEW.note, ''), NEW.organization_id, NEW.company_id);
END;
.import --csv --schema temp /dev/stdin lines
