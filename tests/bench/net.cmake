# Figures of the tcp fabric; run by hand as root: tests/net_bench [CONNECTIONS [MIB [ROUNDS]]]
add_executable(net_bench ${CMAKE_CURRENT_LIST_DIR}/net_bench.c ${CMAKE_CURRENT_LIST_DIR}/../support/fabric_end.c
    ${CMAKE_CURRENT_LIST_DIR}/../support/fabric_remote.c ${CMAKE_CURRENT_LIST_DIR}/../support/netns.c
    ${CMAKE_CURRENT_LIST_DIR}/sealed_loop.c)
target_link_libraries(net_bench PRIVATE sluice_transporter sl_flags PkgConfig::CHECK)
set_target_properties(net_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
