include_guard() # builds for users, without Check, include it as well
# The thrasher is installed beside the programs, so that users can run it on their machines.
if(NOT SL_FUZZ)
    add_executable(thrash ${CMAKE_CURRENT_LIST_DIR}/thrash.c ${CMAKE_CURRENT_LIST_DIR}/thrash_audit.c
        ${CMAKE_CURRENT_LIST_DIR}/thrash_check.c ${CMAKE_CURRENT_LIST_DIR}/thrash_client.c
        ${CMAKE_CURRENT_LIST_DIR}/thrash_contest.c ${CMAKE_CURRENT_LIST_DIR}/../support/linear.c
        ${CMAKE_CURRENT_LIST_DIR}/thrash_engine.c ${CMAKE_CURRENT_LIST_DIR}/thrash_faults.c
        ${CMAKE_CURRENT_LIST_DIR}/thrash_history.c ${CMAKE_CURRENT_LIST_DIR}/thrash_node.c
        ${CMAKE_CURRENT_LIST_DIR}/thrash_probe.c ${CMAKE_CURRENT_LIST_DIR}/thrash_report.c
        ${CMAKE_CURRENT_LIST_DIR}/thrash_upgrade.c ${CMAKE_CURRENT_LIST_DIR}/thrash_worker.c ${CMAKE_CURRENT_LIST_DIR}/thrash_workers.c)
    target_compile_definitions(thrash PRIVATE THRASH_NODE="${CMAKE_SOURCE_DIR}/deploy/sluice-node")
    target_link_libraries(thrash PRIVATE sl_flags sluice_static sluice_ipc sluice_bench_model sluice_runtime
        PkgConfig::JANSSON)
endif()
