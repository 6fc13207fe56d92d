# How fast a swapper's device moves pieces of many runs: tests/pieces_bench
add_executable(pieces_bench ${CMAKE_CURRENT_LIST_DIR}/pieces_bench.c)
target_link_libraries(pieces_bench PRIVATE sluice_device sl_flags)
set_target_properties(pieces_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
