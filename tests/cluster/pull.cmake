# Blocks of another node directly into pools, on real nodes.
add_executable(pull_probe ${CMAKE_CURRENT_LIST_DIR}/pull_probe.c)
target_link_libraries(pull_probe PRIVATE sl_flags sluice)
set_target_properties(pull_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(pull LABEL cluster SCRIPT cluster/pull_test.py TIMEOUT 1800)
