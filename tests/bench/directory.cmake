# Figures of the cluster directory, with a redis-server of its own: tests/directory_bench [KEYS]
add_executable(directory_bench ${CMAKE_CURRENT_LIST_DIR}/directory_bench.c ${CMAKE_CURRENT_LIST_DIR}/../support/redis_server.c
    ${CMAKE_CURRENT_LIST_DIR}/../support/tmpdir.c)
target_link_libraries(directory_bench PRIVATE sluice_transporter sl_flags PkgConfig::HIREDIS)
set_target_properties(directory_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
