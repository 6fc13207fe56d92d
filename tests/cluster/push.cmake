# Direct hand-over between real nodes.
add_executable(push_probe ${CMAKE_CURRENT_LIST_DIR}/push_probe.c)
target_link_libraries(push_probe PRIVATE sl_flags sluice_static sluice_ipc)
set_target_properties(push_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(push LABEL cluster SCRIPT cluster/push_test.py TIMEOUT 1800 LOCK memory)
