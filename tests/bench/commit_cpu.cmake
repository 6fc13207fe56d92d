# The registrar's time for a commit on a node; run by hand: python3 tests/bench/commit_cpu.py --help. ctest only checks that it works.
if(Python3_FOUND AND NOT SL_SANITIZE AND NOT SL_FUZZ)
    add_test(NAME bench/commit_cpu COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/bench/commit_cpu.py --pairs 1 --build ${CMAKE_BINARY_DIR})
    set_tests_properties(bench/commit_cpu PROPERTIES LABELS bench TIMEOUT 120 SKIP_RETURN_CODE 77 COST 5)
endif()
