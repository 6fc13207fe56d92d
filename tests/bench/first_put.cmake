# First puts of new clients; run by hand: python3 tests/bench/first_put.py --help. ctest only checks that it works.
if(TARGET mooncake_store AND NOT SL_SANITIZE)
    add_test(NAME bench/first_put COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/bench/first_put.py --rounds 1 --segment 64 --total 32
        --build ${CMAKE_BINARY_DIR})
    set_tests_properties(bench/first_put PROPERTIES LABELS bench TIMEOUT 600 SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endif()
