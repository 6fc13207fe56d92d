# The cluster directory with a real redis-server.
sl_test(directory_redis_test LABEL node SOURCES ${CMAKE_CURRENT_LIST_DIR}/directory_redis_test.c
    ${CMAKE_CURRENT_LIST_DIR}/../support/redis_server.c ${CMAKE_CURRENT_LIST_DIR}/../support/tmpdir.c LIBS sluice_transporter
    TIMEOUT 300)
sl_node_test(directory LABEL node SCRIPT node/directory_test.py TIMEOUT 900)
