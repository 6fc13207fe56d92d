# Runs in verbs-vm's virtual machine, all of it in one boot; skipped where the tool is absent.
# Speed beside perftest: tests/rdma/run build/release/tests/rdma_test figures
if(SL_VERBS_INCLUDE)
    add_executable(rdma_test ${CMAKE_CURRENT_LIST_DIR}/rdma_test.c ${CMAKE_CURRENT_LIST_DIR}/rdma_places.c ${CMAKE_CURRENT_LIST_DIR}/rdma_lend.c
        ${CMAKE_CURRENT_LIST_DIR}/rdma_rails.c
        ${CMAKE_CURRENT_LIST_DIR}/../support/fabric_end.c ${CMAKE_CURRENT_LIST_DIR}/../support/fabric_remote.c
        ${CMAKE_CURRENT_LIST_DIR}/../support/fake_env.c)
    target_link_libraries(rdma_test PRIVATE sluice_transporter sl_flags PkgConfig::CHECK)
    set_target_properties(rdma_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME rdma/rdma_test COMMAND ${CMAKE_CURRENT_LIST_DIR}/run $<TARGET_FILE:rdma_test>)
    set_tests_properties(rdma/rdma_test PROPERTIES LABELS rdma TIMEOUT 900 SKIP_RETURN_CODE 77 RUN_SERIAL ON)

    # Whole nodes, two NICs each: links fail, transporters are killed and stopped. Sanitized actors take twice these four minutes under
    # emulation, and find nothing that rdma_test and the unit suites do not.
    if(NOT SL_SANITIZE)
        add_test(NAME rdma/nodes COMMAND ${CMAKE_CURRENT_LIST_DIR}/run -a ${CMAKE_BINARY_DIR}/bin -a $<TARGET_FILE:pd_engines> ${CMAKE_CURRENT_LIST_DIR}/nodes ${CMAKE_BINARY_DIR}/bin)
        set_tests_properties(rdma/nodes PROPERTIES LABELS rdma TIMEOUT 900 SKIP_RETURN_CODE 77 RUN_SERIAL ON)
    endif()
endif()
