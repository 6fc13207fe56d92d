# A client's look at an index that anybody wrote to.
sl_fuzz(fuzz_index_view SOURCES fuzz/fuzz_index_view.c LIBS sluice_ipc MAX_LEN 1200)
