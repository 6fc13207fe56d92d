sl_test(directory_test LABEL unit SOURCES unit/directory_test.c support/tmpdir.c LIBS sluice_transporter TIMEOUT 120)
