# Settings files and values, as people and hostile files write them.
if(SL_FUZZ)
    set(RUNTIME_FUZZ_DIR ${CMAKE_CURRENT_LIST_DIR})
    add_executable(fuzz_config ${RUNTIME_FUZZ_DIR}/fuzz_config.c)
    target_link_libraries(fuzz_config PRIVATE sluice_runtime sl_flags)
    target_link_options(fuzz_config PRIVATE -fsanitize=fuzzer)
    set_target_properties(fuzz_config PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz/corpus_config)
    add_test(NAME fuzz/config
        COMMAND fuzz_config -max_total_time=10 -max_len=4096 -timeout=5 -rss_limit_mb=2048
            -dict=${RUNTIME_FUZZ_DIR}/corpus/config.dict ${CMAKE_BINARY_DIR}/fuzz/corpus_config ${RUNTIME_FUZZ_DIR}/corpus/config)
    set_tests_properties(fuzz/config PROPERTIES LABELS fuzz TIMEOUT 120)
endif()
