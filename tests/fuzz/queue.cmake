# Both ends of a ring in memory that another process overwrites.
sl_fuzz(fuzz_queue SOURCES fuzz/fuzz_queue.c LIBS sluice_ipc)
