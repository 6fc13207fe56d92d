# Bytes from peers and unauthenticated connections to the tcp fabric.
sl_fuzz(fuzz_fabric SOURCES fuzz/fuzz_fabric.c LIBS sluice_transporter MAX_LEN 2048)
