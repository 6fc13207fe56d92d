# A client that reads a damaged index.
sl_fuzz(fuzz_index_view SOURCES fuzz/fuzz_index_view.c LIBS sluice_ipc MAX_LEN 1200)
