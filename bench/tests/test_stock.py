"""On a correct Postgres the workload runs without a failure and its consistency conditions hold."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench import tproc
from weirbench.postgres import query, stock_postgres


def test_the_mix_runs_clean_and_every_consistency_condition_notices_a_breach(tmp_path: Path):
    with stock_postgres({"fsync": "off", "max_wal_size": "'2GB'"}) as uri:
        tproc.load(uri, 1)
        assert tproc.violations(uri) == []
        driver = tproc.Driver(uri, tmp_path / "run", warehouses=1, clients=4, rate=None, seconds=5)
        summary = driver.wait(60)
        assert (summary.status, summary.failed, summary.aborted_clients) == (0, 0, 0), summary.text
        rows = driver.transactions()
        assert len(rows) == summary.processed > 0
        assert not driver.complaints()
        assert tproc.new_orders(uri) > 0
        assert tproc.violations(uri) == []

        breaches = {
            1: "UPDATE warehouse SET w_ytd = w_ytd + 1",
            2: "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 1",
            3: "DELETE FROM new_order WHERE no_o_id = (SELECT min(no_o_id) + 1 FROM new_order WHERE no_d_id = 1)",
            4: "DELETE FROM order_line WHERE (ol_d_id, ol_o_id, ol_number) = (1, 1, 1)",
            5: "UPDATE orders SET o_carrier_id = NULL WHERE (o_d_id, o_id) = (1, 1)",
            7: "UPDATE order_line SET ol_delivery_d = NULL WHERE (ol_d_id, ol_o_id) = (1, 2)",
            9: "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_id = 1",
            10: "UPDATE customer SET c_balance = c_balance + 1 WHERE (c_d_id, c_id) = (1, 1)",
        }
        for condition, sql in breaches.items():
            found = query(uri, "CREATE DATABASE broken TEMPLATE postgres STRATEGY file_copy")
            assert found == ""
            broken = uri.removesuffix("/postgres") + "/broken"
            query(broken, sql)
            assert any(v.startswith(f"{condition}:") for v in tproc.violations(broken)), condition
            query(uri.removesuffix("/postgres") + "/template1", "DROP DATABASE broken")
