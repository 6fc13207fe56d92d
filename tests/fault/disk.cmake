# The disk tier under power cuts, failing calls and flipped bits; SL_DISK_BED_LONG=1 runs all cases.
set(DISK_BED_DIR ${CMAKE_CURRENT_LIST_DIR}/disk)
sl_test(disk_crash_bed LABEL fault SOURCES ${DISK_BED_DIR}/crash_bed.c ${DISK_BED_DIR}/tape_disk.c
    support/fake_env.c LIBS sluice_tierer TIMEOUT 900)
target_link_options(disk_crash_bed PRIVATE -Wl,--wrap=sl_log_write)
# Real nodes: all processes killed at once, and tierers killed while they write.
foreach(suite restart vanish churn)
    sl_node_test(disk_${suite} LABEL fault SCRIPT fault/disk/${suite}_test.py TIMEOUT 1800)
endforeach()
