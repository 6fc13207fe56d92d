# The Python package, as it was built here.
foreach(suite objects engines package)
    sl_python_test(${suite} LABEL python SCRIPT python/${suite}_test.py TIMEOUT 600)
endforeach()
# Drivers that play engines' connectors of Mooncake.
if(TARGET mooncake_store)
    foreach(engine sglang fastdeploy)
        sl_python_test(connector_${engine} LABEL python SCRIPT python/connectors/${engine}_test.py TIMEOUT 600)
    endforeach()
endif()
# A sanitized wheel would be of no use to anybody.
if(NOT SL_SANITIZE)
    sl_python_test(wheel LABEL python SCRIPT python/wheel_test.py TIMEOUT 600)
endif()
# The contract of mooncake.store, row by row, and the connectors that call it.
foreach(suite rows config life writing reading sessions removal memory device terms processes)
    sl_python_test(contract_${suite} LABEL python SCRIPT python/contract_${suite}_test.py TIMEOUT 600)
endforeach()
if(NOT SL_SANITIZE)
    sl_python_test(contract_valgrind LABEL python SCRIPT python/contract_valgrind_test.py TIMEOUT 900)
endif()
foreach(connector vllm sglang fastdeploy lmcache ascend)
    sl_python_test(connector_${connector} LABEL python SCRIPT python/connectors/${connector}_test.py TIMEOUT 600)
endforeach()
