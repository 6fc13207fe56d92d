sl_test(supervise_test LABEL unit SOURCES unit/client/tools/supervise_test.c LIBS sluice_supervise)
