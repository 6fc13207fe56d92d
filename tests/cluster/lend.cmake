# Direct hand-over between real nodes.
add_executable(lend_probe ${CMAKE_CURRENT_LIST_DIR}/lend_probe.c)
target_link_libraries(lend_probe PRIVATE sl_flags sluice_static sluice_ipc)
set_target_properties(lend_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(lend LABEL cluster SCRIPT cluster/lend_test.py TIMEOUT 1800 LOCK memory)
