sl_test(fabric_test LABEL unit SOURCES unit/fabric_test.c support/fabric_end.c LIBS sluice_transporter PkgConfig::URING TIMEOUT 300)
sl_test(rails_test LABEL unit SOURCES unit/rails_test.c support/fabric_end.c LIBS sluice_transporter TIMEOUT 300)
sl_test(gid_test LABEL unit SOURCES unit/gid_test.c LIBS sluice_transporter)
sl_test(movers_test LABEL unit SOURCES unit/movers_test.c LIBS sluice_transporter)
