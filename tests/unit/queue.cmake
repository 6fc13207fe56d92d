# Shared-memory rings, lanes, and mailboxes over both transports.
set(QUEUE_UNIT_DIR ${CMAKE_CURRENT_LIST_DIR})
sl_test(queue_test LABEL unit SOURCES ${QUEUE_UNIT_DIR}/queue_test.c LIBS sluice_ipc TIMEOUT 600)
