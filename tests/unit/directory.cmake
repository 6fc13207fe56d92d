sl_test(directory_test LABEL unit SOURCES unit/runtime/net/directory_test.c support/tmpdir.c LIBS sluice_transporter TIMEOUT 120)
