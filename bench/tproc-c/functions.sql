-- Random values as TPC-C defines them (clauses 2.1.6 and 4.3.2), for the load and for the transactions.
\set ON_ERROR_STOP on

CREATE FUNCTION uniform(low integer, high integer) RETURNS integer
    LANGUAGE sql VOLATILE PARALLEL RESTRICTED
    AS $$ SELECT low + floor(random() * (high - low + 1))::integer $$;

-- Non-uniform: some customers and items are much more in demand than others.
CREATE FUNCTION nurand(a integer, low integer, high integer, c integer) RETURNS integer
    LANGUAGE sql VOLATILE PARALLEL RESTRICTED
    AS $$ SELECT ((uniform(0, a) | uniform(low, high)) + c) % (high - low + 1) + low $$;

CREATE FUNCTION last_name(number integer) RETURNS varchar
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT syllables[number / 100 % 10 + 1] || syllables[number / 10 % 10 + 1] || syllables[number % 10 + 1]
        FROM (SELECT ARRAY['BAR','OUGHT','ABLE','PRI','PRES','ESE','ANTI','CALLY','ATION','EING'] AS syllables) s
    $$;

-- Between `low` and `high` characters, no two strings alike.
CREATE FUNCTION filler(low integer, high integer) RETURNS varchar
    LANGUAGE sql VOLATILE PARALLEL RESTRICTED
    AS $$
        SELECT left(string_agg(md5(random()::text), ''), uniform(low, high))
        FROM generate_series(1, (high + 31) / 32)
    $$;

CREATE FUNCTION zip() RETURNS char(9)
    LANGUAGE sql VOLATILE PARALLEL RESTRICTED
    AS $$ SELECT lpad(uniform(0, 9999)::text, 4, '0') || '11111' $$;
