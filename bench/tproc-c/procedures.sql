-- The five transactions. Locks are always taken in one order (warehouse, district, stock by item and
-- warehouse, customer), so that a correct server never reports a deadlock.
\set ON_ERROR_STOP on

-- New order. One in a hundred names an item that does not exist and rolls back, as TPC-C asks.
CREATE PROCEDURE neword(
    p_w_id integer, p_warehouses integer, p_d_id integer, p_c_id integer, p_lines integer,
    INOUT o_id integer, INOUT total numeric
)
LANGUAGE plpgsql AS $$
DECLARE
    v_items    integer[];
    v_unused   boolean := uniform(1, 100) = 1;
    v_line     integer;
    v_lines    integer;
    v_item     integer;
    v_supply   integer;
    v_quantity integer;
    v_price    numeric;
    v_amount   numeric;
    v_dist     char(24);
    v_w_tax    numeric;
    v_d_tax    numeric;
    v_discount numeric;
    v_local    integer := 1;
BEGIN
    total := 0;
    SELECT w_tax INTO STRICT v_w_tax FROM warehouse WHERE w_id = p_w_id;
    SELECT c_discount INTO STRICT v_discount
        FROM customer WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_id = p_c_id;
    SELECT array_agg(DISTINCT i ORDER BY i) INTO v_items
        FROM (SELECT nurand(8191, 1, 100000, 5987) AS i FROM generate_series(1, p_lines)) AS chosen;
    v_lines := cardinality(v_items);
    IF v_unused THEN
        v_items[v_lines] := 100001;
    END IF;

    UPDATE district SET d_next_o_id = d_next_o_id + 1
        WHERE d_w_id = p_w_id AND d_id = p_d_id
        RETURNING d_next_o_id - 1, d_tax INTO STRICT o_id, v_d_tax;

    -- Another warehouse supplies one line in a hundred, where there is another.
    v_supply := p_w_id;
    IF p_warehouses > 1 AND uniform(1, 100) <= v_lines THEN
        v_local := 0;
        v_supply := p_w_id % p_warehouses + 1;
    END IF;
    INSERT INTO orders VALUES (p_w_id, p_d_id, o_id, p_c_id, NULL, v_lines, v_local, now());
    INSERT INTO new_order VALUES (p_w_id, p_d_id, o_id);

    FOR v_line IN 1 .. v_lines LOOP
        v_item := v_items[v_line];
        SELECT i_price INTO v_price FROM item WHERE i_id = v_item;
        IF NOT FOUND THEN
            ROLLBACK;
            o_id := NULL;
            RETURN;
        END IF;
        v_quantity := uniform(1, 10);
        UPDATE stock
            SET s_quantity = s_quantity - v_quantity + CASE WHEN s_quantity >= v_quantity + 10 THEN 0 ELSE 91 END,
                s_ytd = s_ytd + v_quantity,
                s_order_cnt = s_order_cnt + 1,
                s_remote_cnt = s_remote_cnt + (CASE WHEN v_line = 1 AND v_local = 0 THEN 1 ELSE 0 END)
            WHERE s_i_id = v_item AND s_w_id = CASE WHEN v_line = 1 THEN v_supply ELSE p_w_id END
            RETURNING CASE p_d_id WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
                                  WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06
                                  WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09
                                  ELSE s_dist_10 END
            INTO STRICT v_dist;
        v_amount := v_quantity * v_price;
        total := total + v_amount;
        INSERT INTO order_line VALUES (
            p_w_id, p_d_id, o_id, v_line, v_item, CASE WHEN v_line = 1 THEN v_supply ELSE p_w_id END,
            NULL, v_quantity, v_amount, v_dist
        );
    END LOOP;
    total := total * (1 - v_discount) * (1 + v_w_tax + v_d_tax);
END
$$;

-- The customer in the middle of all who share a last name (TPC-C 2.5.2.2).
CREATE FUNCTION customer_by_name(p_w_id integer, p_d_id integer, p_last varchar) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT c_id FROM (
        SELECT c_id, row_number() OVER (ORDER BY c_first, c_id) AS position, count(*) OVER () AS namesakes
        FROM customer WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_last = p_last
    ) AS named WHERE position = (namesakes + 1) / 2
$$;

-- Payment, by customer id or, when p_last is given, by name.
CREATE PROCEDURE payment(
    p_w_id integer, p_d_id integer, p_c_w_id integer, p_c_d_id integer, p_c_id integer, p_last varchar,
    p_amount numeric, INOUT balance numeric
)
LANGUAGE plpgsql AS $$
DECLARE
    v_c_id   integer := p_c_id;
    v_w_name varchar;
    v_d_name varchar;
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + p_amount WHERE w_id = p_w_id RETURNING w_name INTO STRICT v_w_name;
    UPDATE district SET d_ytd = d_ytd + p_amount
        WHERE d_w_id = p_w_id AND d_id = p_d_id RETURNING d_name INTO STRICT v_d_name;
    IF p_last IS NOT NULL THEN
        v_c_id := coalesce(customer_by_name(p_c_w_id, p_c_d_id, p_last), p_c_id);
    END IF;
    UPDATE customer
        SET c_balance = c_balance - p_amount,
            c_ytd_payment = c_ytd_payment + p_amount,
            c_payment_cnt = c_payment_cnt + 1,
            c_data = CASE WHEN c_credit = 'BC'
                THEN left(concat_ws(' ', c_id, c_d_id, c_w_id, p_d_id, p_w_id, p_amount) || '|' || c_data, 500)
                ELSE c_data END
        WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_id = v_c_id
        RETURNING c_balance INTO STRICT balance;
    INSERT INTO history VALUES (
        v_c_id, p_c_d_id, p_c_w_id, p_d_id, p_w_id, now(), p_amount, left(v_w_name || '    ' || v_d_name, 24)
    );
END
$$;

-- Delivery: the oldest undelivered order of each district. Whoever waited for another delivery looks again.
CREATE PROCEDURE delivery(p_w_id integer, p_carrier integer, INOUT delivered integer)
LANGUAGE plpgsql AS $$
DECLARE
    v_d_id   integer;
    v_o_id   integer;
    v_c_id   integer;
    v_amount numeric;
BEGIN
    delivered := 0;
    FOR v_d_id IN 1 .. 10 LOOP
        LOOP
            SELECT min(no_o_id) INTO v_o_id FROM new_order WHERE no_w_id = p_w_id AND no_d_id = v_d_id;
            EXIT WHEN v_o_id IS NULL;
            DELETE FROM new_order WHERE no_w_id = p_w_id AND no_d_id = v_d_id AND no_o_id = v_o_id;
            EXIT WHEN FOUND;
        END LOOP;
        CONTINUE WHEN v_o_id IS NULL;
        UPDATE orders SET o_carrier_id = p_carrier
            WHERE o_w_id = p_w_id AND o_d_id = v_d_id AND orders.o_id = v_o_id RETURNING o_c_id INTO STRICT v_c_id;
        WITH lines AS (
            UPDATE order_line SET ol_delivery_d = now()
            WHERE ol_w_id = p_w_id AND ol_d_id = v_d_id AND ol_o_id = v_o_id RETURNING ol_amount
        ) SELECT sum(ol_amount) INTO STRICT v_amount FROM lines;
        UPDATE customer SET c_balance = c_balance + v_amount, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = p_w_id AND c_d_id = v_d_id AND c_id = v_c_id;
        delivered := delivered + 1;
    END LOOP;
END
$$;

-- Order status: a customer's last order and its lines.
CREATE PROCEDURE ostat(
    p_w_id integer, p_d_id integer, p_c_id integer, p_last varchar, INOUT o_id integer, INOUT lines integer
)
LANGUAGE plpgsql AS $$
DECLARE
    v_c_id integer := p_c_id;
BEGIN
    IF p_last IS NOT NULL THEN
        v_c_id := coalesce(customer_by_name(p_w_id, p_d_id, p_last), p_c_id);
    END IF;
    SELECT o.o_id INTO o_id FROM orders AS o
        WHERE o.o_w_id = p_w_id AND o.o_d_id = p_d_id AND o.o_c_id = v_c_id ORDER BY o.o_id DESC LIMIT 1;
    SELECT count(*) INTO lines FROM order_line
        WHERE ol_w_id = p_w_id AND ol_d_id = p_d_id AND ol_o_id = ostat.o_id;
END
$$;

-- Stock level: how many items of the last twenty orders of a district are short.
CREATE PROCEDURE slev(p_w_id integer, p_d_id integer, p_threshold integer, INOUT short integer)
LANGUAGE plpgsql AS $$
DECLARE
    v_next integer;
BEGIN
    SELECT d_next_o_id INTO STRICT v_next FROM district WHERE d_w_id = p_w_id AND d_id = p_d_id;
    SELECT count(DISTINCT s_i_id) INTO short
        FROM order_line JOIN stock ON s_w_id = p_w_id AND s_i_id = ol_i_id
        WHERE ol_w_id = p_w_id AND ol_d_id = p_d_id AND ol_o_id >= v_next - 20 AND ol_o_id < v_next
          AND s_quantity < p_threshold;
END
$$;
