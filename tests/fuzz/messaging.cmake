# Decoder of messages. Seeds are the golden files: one of each type.
sl_fuzz(fuzz_codec SOURCES fuzz/fuzz_codec.c unit/ipc/msg/messaging_support.c LIBS sluice_ipc PkgConfig::MSGPACK
    SEEDS unit/ipc/msg/golden MAX_LEN 65536)
