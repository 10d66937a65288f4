"""The peer's side of `alignment.py --peer-python`: OpenMined's PSI on the ids of two files.

Runs in an environment of its own, with the package openmined-psi and nothing of ours. Prints one
line of JSON: the common ids, and the seconds and bytes that they took.
"""

import json
import sys
import time
from pathlib import Path

import private_set_intersection.python as psi


def main() -> None:
    """Compare two files of one id per line."""
    client_ids, server_ids = (Path(name).read_text().split() for name in sys.argv[1:3])
    start = time.perf_counter()
    client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
    setup = server.CreateSetupMessage(1e-9, len(client_ids), server_ids, psi.DataStructure.RAW)
    request = client.CreateRequest(client_ids)
    response = server.ProcessRequest(request)
    found = client.GetIntersection(setup, response)
    seconds = time.perf_counter() - start
    moved = sum(one.ByteSize() for one in (setup, request, response))
    common = sorted(client_ids[i] for i in found)
    print(json.dumps({"common": common, "seconds": round(seconds, 2), "bytes": moved}))


if __name__ == "__main__":
    main()
