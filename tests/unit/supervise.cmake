sl_test(supervise_test LABEL unit SOURCES unit/supervise_test.c LIBS sluice_supervise)
