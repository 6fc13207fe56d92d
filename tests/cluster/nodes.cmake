# Real nodes in network namespaces.
foreach(suite nodes directory handover)
    sl_node_test(${suite} LABEL cluster SCRIPT cluster/${suite}_test.py TIMEOUT 1800)
endforeach()
