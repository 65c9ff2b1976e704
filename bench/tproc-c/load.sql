-- Fill the tables for :warehouses warehouses. One statement a table: the server makes the rows, nothing
-- crosses the network. The seed is fixed, so two loads of one size hold the same rows.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
SELECT setseed(0.15);

INSERT INTO item
SELECT i, uniform(1, 10000), filler(14, 24), (uniform(100, 10000) / 100.0)::numeric(5,2),
       CASE WHEN random() < 0.1 THEN 'ORIGINAL' || filler(18, 42) ELSE filler(26, 50) END
FROM generate_series(1, 100000) AS i;

INSERT INTO warehouse
SELECT w, filler(6, 10), filler(10, 20), filler(10, 20), filler(10, 20), left(filler(2, 2), 2), zip(),
       (uniform(0, 2000) / 10000.0)::numeric(4,4), 300000.00
FROM generate_series(1, :warehouses) AS w;

INSERT INTO district
SELECT w, d, filler(6, 10), filler(10, 20), filler(10, 20), filler(10, 20), left(filler(2, 2), 2), zip(),
       (uniform(0, 2000) / 10000.0)::numeric(4,4), 30000.00, 3001
FROM generate_series(1, :warehouses) AS w, generate_series(1, 10) AS d;

INSERT INTO stock
SELECT w, i, uniform(10, 100),
       substr(s, 1, 24), substr(s, 25, 24), substr(s, 49, 24), substr(s, 73, 24), substr(s, 97, 24),
       substr(s, 121, 24), substr(s, 145, 24), substr(s, 169, 24), substr(s, 193, 24), substr(s, 217, 24),
       0, 0, 0,
       CASE WHEN random() < 0.1 THEN 'ORIGINAL' || substr(s, 241, 30) ELSE substr(s, 241, 40) END
FROM generate_series(1, :warehouses) AS w,
     generate_series(1, 100000) AS i,
     LATERAL (SELECT string_agg(md5(w::text || '/' || i::text || '/' || n::text), '') AS s
              FROM generate_series(1, 9) AS n) AS strings;

INSERT INTO customer
SELECT w, d, c, filler(8, 16), 'OE',
       last_name(CASE WHEN c <= 1000 THEN c - 1 ELSE nurand(255, 0, 999, 173) END),
       filler(10, 20), filler(10, 20), filler(10, 20), left(filler(2, 2), 2), zip(), left(filler(16, 16), 16),
       now(), CASE WHEN random() < 0.1 THEN 'BC' ELSE 'GC' END, 50000.00,
       (uniform(0, 5000) / 10000.0)::numeric(4,4), -10.00, 10.00, 1, 0, filler(300, 500)
FROM generate_series(1, :warehouses) AS w, generate_series(1, 10) AS d, generate_series(1, 3000) AS c;

INSERT INTO history
SELECT c_id, c_d_id, c_w_id, c_d_id, c_w_id, now(), 10.00, left(md5(c_id::text), 24) FROM customer;

-- Every customer has one order; the last 900 of each district are not delivered yet.
INSERT INTO orders
SELECT w, d, row_number() OVER (PARTITION BY w, d ORDER BY random()), c, NULL, uniform(5, 15), 1, now()
FROM generate_series(1, :warehouses) AS w, generate_series(1, 10) AS d, generate_series(1, 3000) AS c
ORDER BY 1, 2, 3;

UPDATE orders SET o_carrier_id = uniform(1, 10) WHERE o_id < 2101;

INSERT INTO new_order
SELECT o_w_id, o_d_id, o_id FROM orders WHERE o_id >= 2101 ORDER BY 1, 2, 3;

INSERT INTO order_line
SELECT o_w_id, o_d_id, o_id, n, uniform(1, 100000), o_w_id,
       CASE WHEN o_id < 2101 THEN o_entry_d END, 5,
       CASE WHEN o_id < 2101 THEN 0.00 ELSE uniform(1, 999999) / 100.0 END,
       left(md5(o_id::text || '/' || n::text), 24)
FROM orders, LATERAL generate_series(1, o_ol_cnt) AS n
ORDER BY o_w_id, o_d_id, o_id, n;
