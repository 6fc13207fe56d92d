# Figures of reading from another node; run by hand as root: tests/bench/remote_bench.py [ROUNDS]
add_executable(remote_bench ${CMAKE_CURRENT_LIST_DIR}/remote_bench.c)
target_link_libraries(remote_bench PRIVATE sluice_static sl_flags)
set_target_properties(remote_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
