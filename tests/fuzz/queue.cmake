# Both ends of a ring in memory that somebody else writes.
if(SL_FUZZ)
    add_executable(fuzz_queue ${CMAKE_CURRENT_LIST_DIR}/fuzz_queue.c)
    target_link_libraries(fuzz_queue PRIVATE sluice_ipc sl_flags)
    target_link_options(fuzz_queue PRIVATE -fsanitize=fuzzer)
    set_target_properties(fuzz_queue PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    add_dependencies(fuzzers fuzz_queue)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz/corpus_queue)
    add_test(NAME fuzz/queue
        COMMAND fuzz_queue -max_total_time=10 -max_len=4096 -timeout=5 -rss_limit_mb=2048
            ${CMAKE_BINARY_DIR}/fuzz/corpus_queue)
    set_tests_properties(fuzz/queue PROPERTIES LABELS fuzz TIMEOUT 120 PROCESSORS 2)
endif()
