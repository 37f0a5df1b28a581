-- Runs once, at the first start of docker-compose.yml's PostgreSQL.
CREATE ROLE outport LOGIN PASSWORD 'outport';
CREATE DATABASE outport OWNER outport;

CREATE DATABASE shop;
\connect shop
CREATE TABLE orders (
    code text PRIMARY KEY,
    status text NOT NULL,
    total_amount numeric(12, 2) NOT NULL,
    created_at timestamptz NOT NULL,
    customer_name text NOT NULL,
    note text,
    organization_id uuid NOT NULL,
    company_id uuid NOT NULL,
    deleted_at timestamptz
);
INSERT INTO orders
SELECT 'ORD-' || lpad(n::text, 6, '0'),
       (ARRAY['draft', 'paid', 'shipped'])[1 + n % 3],
       (n * 37 % 100000) / 100.0,
       timestamptz '2026-07-01 00:00Z' + n * interval '13 minutes',
       'Customer ' || n % 100,
       CASE WHEN n % 5 = 0 THEN '=HYPERLINK("http://example.com")' END,
       '0197a801-1690-7590-b3cf-19599b9be3e4',
       '0197a801-6a42-79aa-9e56-d3c85148c0fa',
       CASE WHEN n % 50 = 0 THEN now() END
FROM generate_series(1, 10000) AS n;
CREATE INDEX ON orders (organization_id, created_at);

-- All that an export needs.
CREATE ROLE reader LOGIN PASSWORD 'reader';
GRANT SELECT ON orders TO reader;
