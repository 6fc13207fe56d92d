"""Puts a value, looks it up, gets a copy, and reads it in place:

    sluice-node start && python3 client/examples/put_get.py
"""

import sluice

with sluice.Client() as client:
    client.put("greeting", b"a value of up to 1 GiB")
    print("a copy:", client.get("greeting").decode())
    with client.get_pinned("greeting") as view:  # the bytes do not move until it is released
        print("in place:", bytes(view).decode())
    print("exists:", "yes" if client.exists("greeting") else "no")
