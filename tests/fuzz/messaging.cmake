# Decoder of messages. Seeds are the golden files.
if(SL_FUZZ)
    set(MESSAGING_FUZZ_DIR ${CMAKE_CURRENT_LIST_DIR})
    add_executable(fuzz_codec ${MESSAGING_FUZZ_DIR}/fuzz_codec.c
        ${MESSAGING_FUZZ_DIR}/../unit/messaging_support.c)
    target_link_libraries(fuzz_codec PRIVATE sluice_ipc PkgConfig::MSGPACK sl_flags)
    target_link_options(fuzz_codec PRIVATE -fsanitize=fuzzer)
    set_target_properties(fuzz_codec PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    add_test(NAME fuzz/fuzz_codec
        COMMAND fuzz_codec -max_total_time=10 -max_len=65536 -timeout=5 -rss_limit_mb=2048
            ${CMAKE_BINARY_DIR}/fuzz/corpus_codec ${MESSAGING_FUZZ_DIR}/../unit/golden)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz/corpus_codec)
    set_tests_properties(fuzz/fuzz_codec PROPERTIES LABELS fuzz TIMEOUT 120)
endif()
