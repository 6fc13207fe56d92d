# The Python package, as it was built here.
foreach(suite objects pages batches backend sglang sglang_linker lmcache_native vllm_tier vllm_native vllm_handover vllm_proxy vllm_native_node
    vllm_handover_node vllm_layers rank_layers cold engines package)
    sl_python_test(${suite} LABEL python SCRIPT python/${suite}_test.py TIMEOUT 600)
endforeach()
# A sanitized wheel would be of no use to anybody.
if(NOT SL_SANITIZE)
    sl_python_test(wheel LABEL python SCRIPT python/wheel_test.py TIMEOUT 600 LOCK build_tree COST 30)
endif()
# mooncake.store: its contract row by row, and drivers that play the engines' connectors.
if(TARGET mooncake_store)
    sl_python_test(store LABEL python SCRIPT python/store_test.py TIMEOUT 600 COST 40)
    sl_python_test(store_cold LABEL python SCRIPT python/store_cold_test.py TIMEOUT 600)
    sl_python_test(lmcache_connector LABEL python SCRIPT python/lmcache_connector_test.py TIMEOUT 600)
    foreach(suite rows config life keys writing reading sessions removal memory device terms processes)
        sl_python_test(contract_${suite} LABEL python SCRIPT python/contract_${suite}_test.py TIMEOUT 600)
    endforeach()
    if(NOT SL_SANITIZE)
        sl_python_test(contract_valgrind LABEL python SCRIPT python/contract_valgrind_test.py TIMEOUT 900 COST 70)
    endif()
    foreach(connector vllm sglang fastdeploy lmcache ascend)
        sl_python_test(connector_${connector} LABEL python SCRIPT python/connectors/${connector}_test.py TIMEOUT 600)
    endforeach()
endif()
