# Codec, calls, mailbox, process.
sl_test(codec_test LABEL unit SOURCES unit/ipc/msg/codec_test.c unit/ipc/msg/messaging_support.c
    LIBS sluice_ipc PkgConfig::MSGPACK TIMEOUT 240)
sl_test(calls_test LABEL unit SOURCES unit/ipc/msg/calls_test.c LIBS sluice_ipc)
sl_test(mailbox_test LABEL unit SOURCES unit/ipc/msg/mailbox_test.c LIBS sluice_ipc PkgConfig::ZMQ TIMEOUT 120)
sl_test(process_test LABEL unit SOURCES unit/ipc/msg/process_test.c LIBS sluice_ipc TIMEOUT 120)
