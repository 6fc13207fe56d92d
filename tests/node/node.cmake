# Sanitized actors are slower: limits of time in the tests are multiplied.
set(node_slowdown 1)
if(SL_SANITIZE)
    set(node_slowdown 4)
endif()
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT SL_FUZZ)
    foreach(suite supervisor replay disks)
        add_test(NAME node/${suite} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/node/${suite}_test.py)
        set_tests_properties(node/${suite} PROPERTIES LABELS node TIMEOUT 900 SKIP_RETURN_CODE 77 RUN_SERIAL ON
            ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin;SLUICE_TEST_SLOWDOWN=${node_slowdown}")
    endforeach()
endif()
