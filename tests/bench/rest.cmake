# The cost of an idle node; run by hand: python3 tests/bench/rest.py --help. ctest only checks that it works.
if(Python3_FOUND AND NOT SL_SANITIZE AND NOT SL_FUZZ)
    add_test(NAME bench/rest COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/bench/rest.py --seconds 2 --settle 1 --build ${CMAKE_BINARY_DIR})
    set_tests_properties(bench/rest PROPERTIES LABELS bench TIMEOUT 120 SKIP_RETURN_CODE 77 COST 5)
endif()
