"""What a branch's history is, before anything is asked of it."""

from weir_testing.fixtures import Weir

OLDEST, NEWEST = "2026-01-02T03:04:05.678901Z", "2026-01-05T00:00:00Z"


async def test_a_branch_shows_how_far_back_it_goes_and_where_its_branches_were_made(weir: Weir) -> None:
    created = await weir.project(name="shown-history")
    main, path = created["branch"], f"/projects/{created['project']['id']}/branches"
    young = await weir.call("GET", f"{path}/{main['id']}/history")
    assert "oldest_timestamp" not in young or young["oldest_timestamp"] is None
    assert young["branch_points"] == []
    storage, timeline = weir.storage, main["timeline_id"]
    storage.committed(timeline, "0/1700000", "2026-01-03T00:00:00Z")
    storage.committed(timeline, "0/1900000", NEWEST)
    for name, lsn in (("later", "0/1900000"), ("earlier", "0/1700000")):
        made = await weir.call("POST", path, 201, json={"branch": {"name": name, "parent_lsn": lsn}})
        await weir.finish(made)
    # A branch point stays when the history around it has gone.
    storage.trim(timeline, "0/1800000", OLDEST)
    shown = await weir.call("GET", f"{path}/{main['id']}/history")
    assert (shown["oldest_lsn"], shown["oldest_timestamp"]) == ("0/1800000", OLDEST)
    assert (shown["newest_lsn"], shown["newest_timestamp"]) == ("0/1900000", NEWEST)
    points = [(found["name"], found["lsn"], found["timestamp"]) for found in shown["branch_points"]]
    assert points == [("earlier", "0/1700000", "2026-01-03T00:00:00Z"), ("later", "0/1900000", NEWEST)]


async def test_a_point_is_looked_at_before_it_is_used_and_refused_as_it_would_be(weir: Weir) -> None:
    created = await weir.project(name="looked-at")
    main = created["branch"]
    path = f"/projects/{created['project']['id']}/branches/{main['id']}/history/point"
    weir.storage.committed(main["timeline_id"], "0/1900000", NEWEST)
    weir.storage.trim(main["timeline_id"], "0/1800000", OLDEST)
    assert await weir.call("GET", f"{path}?lsn=0/1900000") == {"lsn": "0/1900000", "timestamp": NEWEST}
    refused = (await weir.call("GET", f"{path}?lsn=0/17FFFFF", 400))["message"]
    assert "0/1800000" in refused
    assert OLDEST in refused
    assert "ahead" in (await weir.call("GET", f"{path}?lsn=0/1900001", 400))["message"]
    assert "future" in (await weir.call("GET", f"{path}?timestamp=2126-01-01T00:00:00Z", 400))["message"]
    assert "LSN or a timestamp" in (await weir.call("GET", path, 400))["message"]


async def test_a_history_that_storage_does_not_tell_is_an_error_and_no_guess(weir: Weir) -> None:
    created = await weir.project(name="untold")
    path = f"/projects/{created['project']['id']}/branches/{created['branch']['id']}/history"
    weir.storage.fail("pageserver", "GET", "/timestamp_of_lsn", 500, times=10)
    assert "try again" in (await weir.call("GET", path, 503))["message"]
    weir.storage.faults.clear()
    await weir.call("GET", path)
