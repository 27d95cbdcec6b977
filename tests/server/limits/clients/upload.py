"""Posts BYTES zeros to http://127.0.0.1:PORT/ COUNT times; prints each status with the number of responses read.

Usage: upload.py PORT BYTES COUNT
"""

import http.client
import sys
from collections import Counter

port, length, count = (int(argument) for argument in sys.argv[1:])
body, seen = bytes(length), Counter()
for _ in range(count):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/", body)
        seen[str(connection.getresponse().status)] += 1
    except OSError as error:
        seen[type(error).__name__] += 1
    connection.close()
print(" ".join(f"{what}:{times}" for what, times in sorted(seen.items())))
