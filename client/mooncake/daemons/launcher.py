#!/usr/bin/python3
"""Starts mooncake_master or mooncake_client, depending on the name by which it is called."""

import os
import sys

here = os.path.dirname(os.path.realpath(__file__))
# Next to the programs of a build, or below the prefix of an installation.
sys.path[:0] = [place for place in (here + "/../python", here + "/../share/sluice/python") if os.path.isdir(place + "/mooncake/daemons")]
sys.dont_write_bytecode = True

from mooncake.daemons import client, master  # noqa: E402

sys.exit({"mooncake_master": master, "mooncake_client": client}[os.path.basename(sys.argv[0])].main())
