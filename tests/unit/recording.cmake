sl_test(recording_test LABEL unit SOURCES unit/recording_test.c LIBS sluice_runtime)
