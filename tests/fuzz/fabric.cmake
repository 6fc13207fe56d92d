# What peers and strangers send to the tcp fabric.
if(SL_FUZZ)
    add_executable(fuzz_fabric ${CMAKE_CURRENT_LIST_DIR}/fuzz_fabric.c)
    target_link_libraries(fuzz_fabric PRIVATE sluice_transporter sl_flags)
    target_link_options(fuzz_fabric PRIVATE -fsanitize=fuzzer)
    set_target_properties(fuzz_fabric PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    add_dependencies(fuzzers fuzz_fabric)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz/corpus_fabric)
    add_test(NAME fuzz/fabric COMMAND fuzz_fabric -max_total_time=10 -max_len=2048 -timeout=10 -rss_limit_mb=2048
        ${CMAKE_BINARY_DIR}/fuzz/corpus_fabric)
    set_tests_properties(fuzz/fabric PROPERTIES LABELS fuzz TIMEOUT 120 PROCESSORS 2)
endif()
