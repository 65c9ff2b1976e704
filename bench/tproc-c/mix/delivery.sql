\set w random(1, :warehouses)
\set carrier random(1, 10)
CALL delivery(:w, :carrier, NULL);
