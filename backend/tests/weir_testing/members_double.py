#!/usr/bin/env python3
"""A double of `weir-members`: its command line and its exit codes; storage keeps the members."""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any

_CODES = {404: 4, 409: 4, 423: 3, 504: 5}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--tenant", "--timeline", "--safekeepers", "--ingested-lsn", "--timeout-ms"):
        parser.add_argument(name, required=True)
    parser.add_argument("kind", choices=("add", "promote", "remove"))
    parser.add_argument("whom")
    arguments = parser.parse_args()
    whom: Any = arguments.whom if arguments.kind == "add" else int(arguments.whom)
    body = {
        "by": "program",
        "timeline_id": arguments.timeline,
        "asked": arguments.safekeepers.split(","),
        arguments.kind: whom,
    }
    request = urllib.request.Request(os.environ["WEIR_TEST_MEMBERS_URL"], json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            sys.stdout.write(answer.read().decode() + "\n")
    except urllib.error.HTTPError as error:
        sys.stderr.write(f"weir-members: {json.loads(error.read())['message']}\n")
        sys.exit(_CODES.get(error.code, 1))


if __name__ == "__main__":
    main()
