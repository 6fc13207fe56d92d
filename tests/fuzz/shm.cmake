# A client's look at an index that anybody wrote to.
if(SL_FUZZ)
    add_executable(fuzz_index_view ${CMAKE_CURRENT_LIST_DIR}/fuzz_index_view.c)
    target_link_libraries(fuzz_index_view PRIVATE sluice_ipc sl_flags)
    target_link_options(fuzz_index_view PRIVATE -fsanitize=fuzzer)
    set_target_properties(fuzz_index_view PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME fuzz/index_view COMMAND fuzz_index_view -runs=20000 -max_len=1200 -len_control=0)
    set_tests_properties(fuzz/index_view PROPERTIES LABELS fuzz TIMEOUT 120)
endif()
