# Real nodes in network namespaces.
foreach(suite nodes directory handover)
    sl_node_test(${suite} LABEL cluster SCRIPT cluster/${suite}_test.py TIMEOUT 1800)
endforeach()
# Engines on two hosts.
if(TARGET mooncake_store AND TARGET mooncake_master)
    sl_python_test(mooncake LABEL cluster SCRIPT cluster/mooncake_test.py TIMEOUT 900)
endif()
