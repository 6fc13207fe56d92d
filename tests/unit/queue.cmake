# Shared-memory rings, and the lanes of mailboxes.
set(QUEUE_UNIT_DIR ${CMAKE_CURRENT_LIST_DIR})
sl_test(queue_test LABEL unit SOURCES ${QUEUE_UNIT_DIR}/queue_test.c LIBS sluice_ipc TIMEOUT 600)
sl_test(lane_test LABEL unit SOURCES ${QUEUE_UNIT_DIR}/lane_test.c LIBS sluice_ipc TIMEOUT 600)
