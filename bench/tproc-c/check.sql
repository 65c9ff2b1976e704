-- TPC-C's consistency conditions (clause 3.3.2), each as the number of places where it does not hold.
-- True of any committed state, so they must hold after every crash, branch and restore.
\set ON_ERROR_STOP on
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
-- The keys have several columns, whose joint selectivity the planner underestimates until it loops for minutes.
SET LOCAL enable_nestloop = off;
SET LOCAL max_parallel_workers_per_gather = 0;
SET LOCAL statement_timeout = '5min';

SELECT '1: w_ytd = sum(d_ytd)' AS condition, count(*) AS violations
FROM warehouse JOIN (SELECT d_w_id, sum(d_ytd) AS ytd FROM district GROUP BY 1) AS d ON d_w_id = w_id
WHERE w_ytd <> ytd
UNION ALL
SELECT '2: d_next_o_id - 1 = max(o_id) = max(no_o_id)', count(*)
FROM district
JOIN (SELECT o_w_id, o_d_id, max(o_id) AS newest FROM orders GROUP BY 1, 2) AS o ON (o_w_id, o_d_id) = (d_w_id, d_id)
LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS waiting FROM new_order GROUP BY 1, 2) AS n
    ON (no_w_id, no_d_id) = (d_w_id, d_id)
WHERE d_next_o_id - 1 <> newest OR (waiting IS NOT NULL AND waiting <> newest)
UNION ALL
SELECT '3: undelivered orders have no gap', count(*)
FROM (SELECT max(no_o_id) - min(no_o_id) + 1 AS span, count(*) AS rows FROM new_order GROUP BY no_w_id, no_d_id) AS n
WHERE span <> rows
UNION ALL
SELECT '4: sum(o_ol_cnt) = number of order lines', count(*)
FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS promised FROM orders GROUP BY 1, 2) AS o
FULL JOIN (SELECT ol_w_id, ol_d_id, count(*) AS lines FROM order_line GROUP BY 1, 2) AS l
    ON (ol_w_id, ol_d_id) = (o_w_id, o_d_id)
WHERE promised IS DISTINCT FROM lines
UNION ALL
SELECT '5: no carrier exactly for undelivered orders', count(*)
FROM orders FULL JOIN new_order ON (no_w_id, no_d_id, no_o_id) = (o_w_id, o_d_id, o_id)
WHERE o_id IS NULL OR (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)
UNION ALL
SELECT '6: each order has its o_ol_cnt lines', count(*)
FROM orders
FULL JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS lines FROM order_line GROUP BY 1, 2, 3) AS l
    ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
WHERE o_ol_cnt IS DISTINCT FROM lines
UNION ALL
SELECT '7: delivery dates exactly on delivered orders', count(*)
FROM orders JOIN order_line ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)
UNION ALL
SELECT '8: w_ytd = sum(h_amount)', count(*)
FROM warehouse JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY 1) AS h ON h_w_id = w_id
WHERE w_ytd <> paid
UNION ALL
SELECT '9: d_ytd = sum(h_amount)', count(*)
FROM district
JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history GROUP BY 1, 2) AS h ON (h_w_id, h_d_id) = (d_w_id, d_id)
WHERE d_ytd <> paid
UNION ALL
SELECT '10: c_balance = delivered - paid', count(*)
FROM customer
JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY 1, 2, 3) AS h
    ON (h_c_w_id, h_c_d_id, h_c_id) = (c_w_id, c_d_id, c_id)
LEFT JOIN (
    SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered
    FROM orders JOIN order_line ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
    WHERE ol_delivery_d IS NOT NULL GROUP BY 1, 2, 3
) AS o ON (o_w_id, o_d_id, o_c_id) = (c_w_id, c_d_id, c_id)
WHERE c_balance <> coalesce(delivered, 0) - paid
UNION ALL
SELECT '11: c_ytd_payment = sum(h_amount)', count(*)
FROM customer
JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY 1, 2, 3) AS h
    ON (h_c_w_id, h_c_d_id, h_c_id) = (c_w_id, c_d_id, c_id)
WHERE c_ytd_payment <> paid
UNION ALL
SELECT '12: s_order_cnt = order lines since the load', count(*)
FROM (SELECT sum(s_order_cnt) AS counted FROM stock) AS s,
     (SELECT count(*) AS written FROM order_line JOIN orders ON (o_w_id, o_d_id, o_id) = (ol_w_id, ol_d_id, ol_o_id)
      WHERE o_id > 3000) AS l
WHERE counted <> written
ORDER BY 1;

ROLLBACK;
