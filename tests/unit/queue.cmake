# Shared-memory rings, and the lanes of mailboxes.
sl_test(queue_test LABEL unit SOURCES unit/ipc/msg/queue_test.c LIBS sluice_ipc TIMEOUT 600)
sl_test(lane_test LABEL unit SOURCES unit/ipc/msg/lane_test.c LIBS sluice_ipc TIMEOUT 600)
