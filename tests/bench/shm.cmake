# Figures of the index; run by hand: tests/index_bench [KEYS [GROUPED]]
add_executable(index_bench ${CMAKE_CURRENT_LIST_DIR}/index_bench.c)
target_link_libraries(index_bench PRIVATE sluice_ipc sl_flags)
set_target_properties(index_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
