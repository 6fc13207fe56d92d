# The client library with hostile actors.
sl_fuzz(fuzz_client SOURCES fuzz/fuzz_client.c LIBS sluice_static sl_fuzz_hostile sluice_ipc MAX_LEN 800)
