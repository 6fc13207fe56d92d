# Codec, calls, mailbox, process.
set(MESSAGING_UNIT_DIR ${CMAKE_CURRENT_LIST_DIR})
sl_test(codec_test LABEL unit SOURCES ${MESSAGING_UNIT_DIR}/codec_test.c ${MESSAGING_UNIT_DIR}/messaging_support.c
    LIBS sluice_ipc PkgConfig::MSGPACK TIMEOUT 240)
sl_test(calls_test LABEL unit SOURCES ${MESSAGING_UNIT_DIR}/calls_test.c LIBS sluice_ipc)
sl_test(mailbox_test LABEL unit SOURCES ${MESSAGING_UNIT_DIR}/mailbox_test.c LIBS sluice_ipc PkgConfig::ZMQ TIMEOUT 120)
sl_test(process_test LABEL unit SOURCES ${MESSAGING_UNIT_DIR}/process_test.c LIBS sluice_ipc TIMEOUT 120)
