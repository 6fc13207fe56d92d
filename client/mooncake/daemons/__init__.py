"""mooncake_master and mooncake_client: a node of Sluice in place of Mooncake's daemons. See README.md in this folder."""
