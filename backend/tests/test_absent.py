"""Lists of what there is not: empty for a project of one's own, and 404 for others'."""

from weir_testing.fixtures import Weir


async def test_lists_of_what_there_is_not_are_empty_for_those_who_may_ask(weir: Weir) -> None:
    created = await weir.project(name="absent")
    project = f"/projects/{created['project']['id']}"
    branch = f"{project}/branches/{created['branch']['id']}"
    paths = {
        f"{branch}/buckets": "buckets",
        f"{branch}/functions": "functions",
        f"{branch}/triggers": "triggers",
        f"{branch}/credentials": "credentials",
        f"{project}/vpc_endpoints": "endpoints",
    }
    for path, name in paths.items():
        assert await weir.call("GET", path) == {name: []}
    async with weir.as_account("stranger-to-absence") as stranger:
        for path in paths:
            await stranger.call("GET", path, 404)
    await weir.call("GET", f"{project}/branches/br-never-there-00000000/buckets", 404)
