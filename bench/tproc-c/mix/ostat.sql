\set w random(1, :warehouses)
\set d random(1, 10)
\set c ((random(0, 1023) | random(1, 3000)) + 867) % 3000 + 1
\set name ((random(0, 255) | random(0, 999)) + 173) % 1000
\set byname random(1, 100)
CALL ostat(:w, :d, :c, CASE WHEN :byname <= 60 THEN last_name(:name) END, NULL, NULL);
