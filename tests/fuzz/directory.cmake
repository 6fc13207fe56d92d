# The cluster directory with a server that sends anything.
sl_fuzz(fuzz_directory SOURCES fuzz/fuzz_directory.c LIBS sluice_transporter MAX_LEN 4096 DICT fuzz/corpus/directory.dict
    SEEDS fuzz/corpus/directory)
