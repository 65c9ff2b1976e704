\set w random(1, :warehouses)
\set d random(1, 10)
\set c ((random(0, 1023) | random(1, 3000)) + 867) % 3000 + 1
\set lines random(5, 15)
CALL neword(:w, :warehouses, :d, :c, :lines, NULL, NULL);
