# The cluster directory with a real redis-server.
sl_test(directory_redis_test LABEL node SOURCES ${CMAKE_CURRENT_LIST_DIR}/directory_redis_test.c
    ${CMAKE_CURRENT_LIST_DIR}/../support/redis_server.c ${CMAKE_CURRENT_LIST_DIR}/../support/tmpdir.c LIBS sluice_transporter
    TIMEOUT 300)
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT SL_FUZZ)
    set(node_slowdown 1)
    if(SL_SANITIZE)
        set(node_slowdown 4)
    endif()
    add_test(NAME node/directory COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/node/directory_test.py)
    set_tests_properties(node/directory PROPERTIES LABELS node TIMEOUT 900 SKIP_RETURN_CODE 77 RUN_SERIAL ON
        ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin;SLUICE_TEST_SLOWDOWN=${node_slowdown}")
endif()
