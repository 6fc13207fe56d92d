sl_node_test(mooncake LABEL node SCRIPT node/mooncake_test.py TIMEOUT 900)
