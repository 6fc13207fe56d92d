# The disk tier beside fio; run by hand: python3 tests/bench/disk.py --help. Here only that it works.
if(TARGET sluice_python AND NOT SL_SANITIZE)
    add_test(NAME bench/disk COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/bench/disk.py --memory-mib 32 --sizes 256
        --build ${CMAKE_BINARY_DIR})
    set_tests_properties(bench/disk PROPERTIES LABELS bench TIMEOUT 300 SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endif()
