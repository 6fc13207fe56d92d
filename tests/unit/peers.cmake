sl_test(health_test LABEL unit SOURCES unit/health_test.c LIBS sluice_transporter)
sl_test(peers_test LABEL unit SOURCES unit/peers_test.c support/fake_env.c LIBS sluice_transporter)
