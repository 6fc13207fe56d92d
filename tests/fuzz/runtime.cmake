# Settings files and values, as people and hostile files write them.
sl_fuzz(fuzz_config SOURCES fuzz/fuzz_config.c LIBS sluice_runtime SEEDS fuzz/corpus/config DICT fuzz/corpus/config.dict)
