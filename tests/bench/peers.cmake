# Sluice compared with Mooncake and Redis; run by hand: python3 tests/bench/peers --help. ctest only checks that it works, with Sluice only.
if(TARGET mooncake_store AND NOT SL_SANITIZE)
    add_test(NAME bench/peers COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/bench/peers --smoke --build ${CMAKE_BINARY_DIR})
    set_tests_properties(bench/peers PROPERTIES LABELS bench TIMEOUT 600 SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endif()
