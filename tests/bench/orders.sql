-- Makes the table `orders` that benchmarks export: nine columns of the kinds that real tables
-- have, with texts that need quoting. Everything follows from the row's number, so a second
-- table is the same to the byte.
--
--   psql -v rows=1000000 -f orders.sql DATABASE

\set ON_ERROR_STOP on
\if :{?rows}
\else
  \set rows 1000000
\endif

CREATE TABLE orders (
    id bigint NOT NULL,
    code text NOT NULL,
    status text NOT NULL,
    total_amount numeric(12, 2) NOT NULL,
    created_at timestamptz NOT NULL,
    customer_name text NOT NULL,
    note text,
    organization_id uuid NOT NULL,
    company_id uuid NOT NULL
);

WITH numbered AS (
    -- A hash of the number stands in for chance.
    SELECT n, (hashint8extended(n, 7) & 9007199254740991) AS h
    FROM generate_series(1, :rows::bigint) AS n
)
INSERT INTO orders
SELECT n,
       'ORD-' || to_char(2020 + h % 7, 'FM0000') || '-' || lpad(n::text, 9, '0'),
       (ARRAY['draft', 'pending', 'paid', 'shipped', 'delivered', 'cancelled'])[1 + h / 7 % 6],
       (h / 11 % 10000000) / 100.0,
       timestamptz '2020-01-01 00:00Z' + h / 13 % 200000000 * interval '1 second'
           + h / 17 % 1000000 * interval '1 microsecond',
       CASE h / 19 % 10
           WHEN 0 THEN 'Silva, Sons & Co.'
           WHEN 1 THEN 'Zoë "Zed" Muñoz'
           WHEN 2 THEN E'Straßenbau KG\nBuchhaltung'
           WHEN 3 THEN '有限会社見本'
           ELSE (ARRAY['Ana', 'Bela', 'Caio', 'Dora', 'Enzo', 'Fabi'])[1 + h / 23 % 6] || ' '
               || (ARRAY['Almeida', 'Barros', 'Costa', 'Duarte', 'Esteves'])[1 + h / 29 % 5]
       END,
       CASE h / 31 % 10
           WHEN 0 THEN NULL
           WHEN 1 THEN NULL
           WHEN 2 THEN NULL
           WHEN 3 THEN 'Asked for a "quiet" delivery, before ' || h / 37 % 24 || ':00'
           WHEN 4 THEN E'First line\nsecond line, with a comma ' || md5(n::text)
           ELSE 'Leave at the reception and call ' || h / 41 % 1000000
       END,
       '0197a801-1690-7590-b3cf-19599b9be3e4',
       md5('company' || h / 43 % 5000)::uuid
FROM numbered;

ALTER TABLE orders ADD PRIMARY KEY (id);
VACUUM (FREEZE, ANALYZE) orders;
