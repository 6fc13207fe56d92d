sl_test(push_test LABEL unit SOURCES unit/push_test.c support/fake_env.c support/fake_net.c LIBS sluice_transporter)
sl_test(push_pools_test LABEL unit SOURCES unit/push_pools_test.c support/fake_env.c support/fake_net.c LIBS sluice_transporter)
