\set w random(1, :warehouses)
\set d random(1, 10)
\set remote random(1, 100)
\set cw case when :remote <= 15 then :w % :warehouses + 1 else :w end
\set cd case when :remote <= 15 then random(1, 10) else :d end
\set c ((random(0, 1023) | random(1, 3000)) + 867) % 3000 + 1
\set name ((random(0, 255) | random(0, 999)) + 173) % 1000
\set amount random(100, 500000)
\set byname random(1, 100)
CALL payment(:w, :d, :cw, :cd, :c, CASE WHEN :byname <= 60 THEN last_name(:name) END, :amount / 100.0, NULL);
