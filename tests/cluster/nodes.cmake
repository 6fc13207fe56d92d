# Real nodes in network namespaces.
sl_node_test(nodes LABEL cluster SCRIPT cluster/nodes_test.py TIMEOUT 1800)
sl_node_test(rails LABEL cluster SCRIPT cluster/rails_test.py TIMEOUT 600)
sl_node_test(unauth LABEL cluster SCRIPT cluster/unauth_test.py TIMEOUT 600)
sl_node_test(directory LABEL cluster SCRIPT cluster/directory_test.py TIMEOUT 1800 LOCK memory)
sl_node_test(handover LABEL cluster SCRIPT cluster/handover_test.py TIMEOUT 1800)
sl_node_test(handover_pools LABEL cluster SCRIPT cluster/handover_pools_test.py TIMEOUT 1800)
sl_python_test(batches LABEL cluster SCRIPT cluster/batches_test.py TIMEOUT 600)
sl_python_test(notify LABEL cluster SCRIPT cluster/notify_test.py TIMEOUT 900)
# Engines on two hosts.
if(TARGET mooncake_store)
    sl_python_test(mooncake LABEL cluster SCRIPT cluster/mooncake_test.py TIMEOUT 900)
endif()
