add_executable(client_probe ${CMAKE_CURRENT_LIST_DIR}/client_probe.c)
target_link_libraries(client_probe PRIVATE sl_flags sluice)
set_target_properties(client_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(object_api LABEL node SCRIPT node/object_api.py TIMEOUT 900)
# What a killed client held comes back.
add_executable(death_probe ${CMAKE_CURRENT_LIST_DIR}/death_probe.c)
target_link_libraries(death_probe PRIVATE sl_flags sluice)
set_target_properties(death_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(death LABEL node SCRIPT node/death_test.py TIMEOUT 600)
# Owners, waiters and mappers of pools, killed and stopped; a hybrid engine.
add_executable(pool_probe ${CMAKE_CURRENT_LIST_DIR}/pool_probe.c)
target_link_libraries(pool_probe PRIVATE sl_flags sluice)
set_target_properties(pool_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(pools LABEL node SCRIPT node/pools_test.py TIMEOUT 600)
# An engine that computes layer by layer.
add_executable(layers_probe ${CMAKE_CURRENT_LIST_DIR}/layers_probe.c)
target_link_libraries(layers_probe PRIVATE sl_flags sluice)
set_target_properties(layers_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(layers LABEL node SCRIPT node/layers_test.py TIMEOUT 600)
# Values from and into pieces of memory.
add_executable(pieces_probe ${CMAKE_CURRENT_LIST_DIR}/pieces_probe.c)
target_link_libraries(pieces_probe PRIVATE sl_flags sluice)
set_target_properties(pieces_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
# ... also of a GPU's, played by ordinary memory.
add_executable(device_probe ${CMAKE_CURRENT_LIST_DIR}/device_probe.c)
target_link_libraries(device_probe PRIVATE sl_flags sluice_static sluice_driver ${CMAKE_DL_LIBS})
set_target_properties(device_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(device_probe fake_cuda)
sl_node_test(pieces LABEL node SCRIPT node/pieces_test.py TIMEOUT 600)
# Leases, pins and bundles.
add_executable(terms_probe ${CMAKE_CURRENT_LIST_DIR}/terms_probe.c)
target_link_libraries(terms_probe PRIVATE sl_flags sluice)
set_target_properties(terms_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(terms LABEL node SCRIPT node/terms_test.py TIMEOUT 600)
