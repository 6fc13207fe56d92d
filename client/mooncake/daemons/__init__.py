"""mooncake_master and mooncake_client: a node of Sluice in the place of Mooncake's daemons. README.md beside this file has the whole."""
