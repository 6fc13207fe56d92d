add_executable(client_probe ${CMAKE_CURRENT_LIST_DIR}/client_probe.c)
target_link_libraries(client_probe PRIVATE sl_flags sluice)
set_target_properties(client_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(object_api LABEL node SCRIPT node/object_api.py TIMEOUT 900)
# Many values by one process.
add_executable(values_probe ${CMAKE_CURRENT_LIST_DIR}/values_probe.c)
target_link_libraries(values_probe PRIVATE sl_flags sluice)
set_target_properties(values_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
# Puts of several threads over the node's replacement.
add_executable(putting_probe ${CMAKE_CURRENT_LIST_DIR}/putting_probe.c)
target_link_libraries(putting_probe PRIVATE sl_flags sluice)
set_target_properties(putting_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(putting LABEL node SCRIPT node/putting_test.py TIMEOUT 600)
# The resources of a killed client are released.
add_executable(death_probe ${CMAKE_CURRENT_LIST_DIR}/death_probe.c)
target_link_libraries(death_probe PRIVATE sl_flags sluice)
set_target_properties(death_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(death LABEL node SCRIPT node/death_test.py TIMEOUT 600)
# Owners, waiters and mappers of pools, killed and stopped; a hybrid engine.
add_executable(pool_probe ${CMAKE_CURRENT_LIST_DIR}/pool_probe.c)
target_link_libraries(pool_probe PRIVATE sl_flags sluice)
set_target_properties(pool_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(pools LABEL node SCRIPT node/pools_test.py TIMEOUT 600)
# Two engines that hand requests over; also of cluster and rdma.
add_executable(pd_engines ${CMAKE_CURRENT_SOURCE_DIR}/support/pd/pd_engines.c ${CMAKE_CURRENT_SOURCE_DIR}/support/pd/pd_decode.c
    ${CMAKE_CURRENT_SOURCE_DIR}/support/pd/pd_engine.c ${CMAKE_CURRENT_SOURCE_DIR}/support/pd/pd_prefill.c)
target_link_libraries(pd_engines PRIVATE sl_flags sluice_command sluice_bench_model sluice_keys)
set_target_properties(pd_engines PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
# The first programs that a programmer reads: client/examples.
foreach(example engine handover put_get)
    add_executable(example_${example} ${CMAKE_SOURCE_DIR}/client/examples/${example}.c)
    target_link_libraries(example_${example} PRIVATE sl_flags sluice)
    target_include_directories(example_${example} PRIVATE ${CMAKE_SOURCE_DIR}/client/include)
    set_target_properties(example_${example} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endforeach()
sl_node_test(client_examples LABEL node SCRIPT node/client_examples_test.py TIMEOUT 600)
# An engine that computes layer by layer.
add_executable(layers_probe ${CMAKE_CURRENT_LIST_DIR}/layers_probe.c)
target_link_libraries(layers_probe PRIVATE sl_flags sluice)
set_target_properties(layers_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(layers LABEL node SCRIPT node/layers_test.py TIMEOUT 600)
# Parts of blocks that are not ranks, and ranks that are processes.
add_executable(parts_probe ${CMAKE_CURRENT_LIST_DIR}/parts_probe.c)
target_link_libraries(parts_probe PRIVATE sl_flags sluice sluice_driver)
# Also in the check-up's archive, as gpu.cmake says.
target_link_options(parts_probe PRIVATE -Wl,--disable-new-dtags)
set_target_properties(parts_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
    INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
sl_node_test(parts LABEL node SCRIPT node/parts_test.py TIMEOUT 600)
# Values from and into pieces of memory.
add_executable(pieces_probe ${CMAKE_CURRENT_LIST_DIR}/pieces_probe.c)
target_link_libraries(pieces_probe PRIVATE sl_flags sluice)
set_target_properties(pieces_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
# ... also in device memory, played by ordinary memory.
add_executable(device_probe ${CMAKE_CURRENT_LIST_DIR}/device_probe.c)
target_link_libraries(device_probe PRIVATE sl_flags sluice_static sluice_driver ${CMAKE_DL_LIBS})
set_target_properties(device_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(device_probe fake_cuda)
add_executable(engine_memory_probe ${CMAKE_CURRENT_LIST_DIR}/engine_memory_probe.c)
target_link_libraries(engine_memory_probe PRIVATE sl_flags sluice_static sluice_device sluice_driver ${CMAKE_DL_LIBS})
set_target_properties(engine_memory_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(engine_memory_probe fake_cuda)
sl_node_test(pieces LABEL node SCRIPT node/pieces_test.py TIMEOUT 600)
# Leases, pins and bundles.
add_executable(terms_probe ${CMAKE_CURRENT_LIST_DIR}/terms_probe.c)
target_link_libraries(terms_probe PRIVATE sl_flags sluice)
set_target_properties(terms_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(terms LABEL node SCRIPT node/terms_test.py TIMEOUT 600)
# Memory that processes contribute, and values that replace others.
add_executable(contributions_probe ${CMAKE_CURRENT_LIST_DIR}/contributions_probe.c)
target_link_libraries(contributions_probe PRIVATE sl_flags sluice)
set_target_properties(contributions_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(contributions LABEL node SCRIPT node/contributions_test.py TIMEOUT 600)
sl_node_test(replace LABEL node SCRIPT node/replace_test.py TIMEOUT 900)
# A client whose node is replaced, or whose memory is truncated.
add_executable(lives_probe ${CMAKE_CURRENT_LIST_DIR}/lives_probe.c)
target_link_libraries(lives_probe PRIVATE sl_flags sluice)
set_target_properties(lives_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
sl_node_test(lives LABEL node SCRIPT node/lives_test.py TIMEOUT 600)
sl_node_test(clients LABEL node SCRIPT node/clients_test.py TIMEOUT 600)
sl_node_test(truncate LABEL node SCRIPT node/truncate_test.py TIMEOUT 600)
