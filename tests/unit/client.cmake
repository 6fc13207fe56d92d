sl_test(client_test LABEL unit SOURCES unit/client/lib/client_test.c LIBS sluice_bench_model sluice_static
    PkgConfig::JANSSON)
sl_test(top_test LABEL unit SOURCES unit/client/tools/top_test.c LIBS sluice_top)
sl_node_test(checks LABEL unit SCRIPT unit/client/tools/checks_test.py TIMEOUT 120)
sl_node_test(trace_lines LABEL unit SCRIPT unit/client/tools/trace_lines_test.py TIMEOUT 60)
sl_node_test(replay_parts LABEL unit SCRIPT unit/client/tools/replay_parts_test.py TIMEOUT 60)
sl_python_test(replay_library LABEL unit SCRIPT unit/client/tools/replay_library_test.py TIMEOUT 60)
sl_node_test(top_views LABEL unit SCRIPT unit/client/tools/top_views_test.py TIMEOUT 60)
sl_test(client_hostile_test LABEL unit SOURCES unit/client/lib/client_hostile_test.c
    support/tmpdir.c LIBS sluice_static TIMEOUT 120)
sl_test(pool_rules_test LABEL unit SOURCES unit/client/lib/pool_rules_test.c LIBS sluice_static)
sl_test(store_names_test LABEL unit SOURCES unit/client/mooncake/store_names_test.c LIBS sluice_store sluice_static)
sl_test(store_fork_test LABEL unit SOURCES unit/client/mooncake/store_fork_test.c LIBS sluice_store sluice_static)
sl_test(store_ceiling_test LABEL unit SOURCES unit/client/mooncake/store_ceiling_test.c LIBS sluice_store sluice_static)
target_link_options(store_ceiling_test PRIVATE
    -Wl,--wrap=clock_gettime,--wrap=sl_get_pinned,--wrap=sl_get_pinned_batch,--wrap=sl_getv)
sl_test(unload_test LABEL unit SOURCES unit/client/lib/unload_test.c LIBS ${CMAKE_DL_LIBS})
target_compile_definitions(unload_test PRIVATE LIBSLUICE="$<TARGET_FILE:sluice>")
add_dependencies(unload_test sluice)
sl_test(plain_pages_test LABEL unit SOURCES unit/cuda/plain_pages_test.c LIBS sluice_static)
sl_test(memory_test LABEL unit SOURCES unit/runtime/base/memory_test.c LIBS sluice_static)
sl_test(client_threads_test LABEL unit SOURCES unit/client/lib/client_threads_test.c
    support/tmpdir.c LIBS sluice_static)
target_link_options(client_threads_test PRIVATE -Wl,--wrap=ppoll,--wrap=pthread_cond_timedwait,--wrap=timerfd_settime)
sl_test(readers_test LABEL unit SOURCES unit/ipc/shm/readers_test.c LIBS sluice_static TIMEOUT 300)
sl_test(blocks_test LABEL unit SOURCES unit/client/lib/blocks_test.c support/tmpdir.c
    LIBS sluice_static)
sl_node_test(node_lines LABEL unit SCRIPT unit/client/tools/node_lines_test.py TIMEOUT 60)
