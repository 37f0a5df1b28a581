-- The table of orders.sql, for MariaDB and MySQL.
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    code varchar(40) NOT NULL,
    status varchar(20) NOT NULL,
    total_amount decimal(12, 2) NOT NULL,
    created_at timestamp(6) NOT NULL,
    customer_name varchar(200) NOT NULL,
    note text,
    organization_id char(36) NOT NULL,
    company_id char(36) NOT NULL
) ENGINE = InnoDB CHARACTER SET utf8mb4;
