# Figures of the index; run by hand: tests/index_bench [KEYS]... [--grouped] [--json]
add_executable(index_bench ${CMAKE_CURRENT_LIST_DIR}/index_bench.c)
target_link_libraries(index_bench PRIVATE sluice_ipc sl_flags)
set_target_properties(index_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
# How long a registrar takes to restart: tests/restart_bench [KEYS [PARTS]] [--json]
if(TARGET sluice_registrar)
    add_executable(restart_bench ${CMAKE_CURRENT_LIST_DIR}/restart_bench.c ${CMAKE_CURRENT_SOURCE_DIR}/unit/actors/registrar/registrar_support.c
        ${CMAKE_CURRENT_SOURCE_DIR}/support/fake_env.c)
    target_link_libraries(restart_bench PRIVATE sluice_registrar sl_flags PkgConfig::CHECK)
    set_target_properties(restart_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    # The registrar's CPU time a commit, of lru and density in turns: tests/registrar_bench [BLOCKS] [--turns N] [--shape NAME] [--json]
    add_executable(registrar_bench ${CMAKE_CURRENT_LIST_DIR}/registrar_bench.c ${CMAKE_CURRENT_SOURCE_DIR}/unit/actors/registrar/registrar_support.c
        ${CMAKE_CURRENT_SOURCE_DIR}/support/fake_env.c)
    target_link_libraries(registrar_bench PRIVATE sluice_registrar sl_flags PkgConfig::CHECK)
    set_target_properties(registrar_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()
# How long a restarted tierer takes to learn what its disk holds: tests/disk_restart_bench DIRECTORY [TOTAL_MIB [VALUE_BYTES]]
if(TARGET sluice_tierer)
    add_executable(disk_restart_bench ${CMAKE_CURRENT_LIST_DIR}/disk_restart_bench.c
        ${CMAKE_CURRENT_SOURCE_DIR}/support/fake_env.c)
    target_link_libraries(disk_restart_bench PRIVATE sluice_tierer sl_flags PkgConfig::CHECK)
    set_target_properties(disk_restart_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()
# How long a scheduler's process takes to look up 2,000 blocks: tests/look_bench [BLOCKS [PARTS]]
if(TARGET sluice_static)
    add_executable(look_bench ${CMAKE_CURRENT_LIST_DIR}/look_bench.c)
    target_link_libraries(look_bench PRIVATE sluice_static sl_flags)
    set_target_properties(look_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()
# Round trips through a queue in shared memory: tests/queue_bench [BYTES]
add_executable(queue_bench ${CMAKE_CURRENT_LIST_DIR}/queue_bench.c)
target_link_libraries(queue_bench PRIVATE sluice_ipc sluice_bench_model sl_flags)
set_target_properties(queue_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
