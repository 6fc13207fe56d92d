# Figures of reading from another node; run by hand as root: tests/bench/remote_bench.py [ROUNDS [clear]]
add_executable(remote_bench ${CMAKE_CURRENT_LIST_DIR}/remote_bench.c ${CMAKE_CURRENT_LIST_DIR}/sealed_loop.c)
target_link_libraries(remote_bench PRIVATE sluice_static sl_flags PkgConfig::CRYPTO)
set_target_properties(remote_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
