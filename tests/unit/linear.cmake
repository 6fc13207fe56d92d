# Tests the checker with which other suites judge histories.
sl_test(linear_test LABEL unit SOURCES unit/tests/linear_test.c LIBS sluice_ipc)
