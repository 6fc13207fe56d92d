# Figures of the tcp fabric; run by hand as root: tests/net_bench [CONNECTIONS [MIB [ROUNDS]]], tests/direct_bench [PAIRS [MIB]]
foreach(bench net_bench direct_bench)
    add_executable(${bench} ${CMAKE_CURRENT_LIST_DIR}/${bench}.c ${CMAKE_CURRENT_LIST_DIR}/../support/fabric_end.c
        ${CMAKE_CURRENT_LIST_DIR}/../support/fabric_remote.c ${CMAKE_CURRENT_LIST_DIR}/../support/netns.c
        ${CMAKE_CURRENT_LIST_DIR}/sealed_loop.c)
    target_link_libraries(${bench} PRIVATE sluice_transporter sl_flags PkgConfig::CHECK)
    set_target_properties(${bench} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endforeach()
