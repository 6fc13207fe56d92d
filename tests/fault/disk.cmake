# The disk tier under power cuts, failing calls and flipped bits; SL_DISK_BED_LONG=1 tries everything.
set(DISK_BED_DIR ${CMAKE_CURRENT_LIST_DIR}/disk)
sl_test(disk_crash_bed LABEL fault SOURCES ${DISK_BED_DIR}/crash_bed.c ${DISK_BED_DIR}/tape_disk.c
    support/fake_env.c LIBS sluice_tierer TIMEOUT 900)
# Real nodes: everything killed at once, and tierers killed while they write.
if(Python3_FOUND AND NOT SL_FUZZ)
    set(disk_slowdown 1)
    if(SL_SANITIZE)
        set(disk_slowdown 4)
    endif()
    add_test(NAME fault/disk_restart COMMAND ${Python3_EXECUTABLE} ${DISK_BED_DIR}/restart_test.py)
    set_tests_properties(fault/disk_restart PROPERTIES LABELS fault TIMEOUT 1800 SKIP_RETURN_CODE 77 RUN_SERIAL ON
        ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin;SLUICE_TEST_SLOWDOWN=${disk_slowdown}")
    add_test(NAME fault/disk_vanish COMMAND ${Python3_EXECUTABLE} ${DISK_BED_DIR}/vanish_test.py)
    set_tests_properties(fault/disk_vanish PROPERTIES LABELS fault TIMEOUT 1800 SKIP_RETURN_CODE 77 RUN_SERIAL ON
        ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin;SLUICE_TEST_SLOWDOWN=${disk_slowdown}")
    add_test(NAME fault/disk_churn COMMAND ${Python3_EXECUTABLE} ${DISK_BED_DIR}/churn_test.py)
    set_tests_properties(fault/disk_churn PROPERTIES LABELS fault TIMEOUT 1800 SKIP_RETURN_CODE 77 RUN_SERIAL ON
        ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin;SLUICE_TEST_SLOWDOWN=${disk_slowdown}")
endif()
