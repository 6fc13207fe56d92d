# Real nodes in network namespaces. Sanitized actors are slower: limits of time in the tests are multiplied.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT SL_FUZZ)
    set(cluster_slowdown 1)
    if(SL_SANITIZE)
        set(cluster_slowdown 4)
    endif()
    add_test(NAME cluster/nodes COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/nodes_test.py)
    set_tests_properties(cluster/nodes PROPERTIES LABELS cluster TIMEOUT 1800 SKIP_RETURN_CODE 77 RUN_SERIAL ON
        ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin;SLUICE_TEST_SLOWDOWN=${cluster_slowdown}")
endif()
