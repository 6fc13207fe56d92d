sl_test(cluster_test LABEL unit SOURCES unit/cluster_test.c LIBS sluice_ipc)
sl_test(health_test LABEL unit SOURCES unit/health_test.c LIBS sluice_transporter)
sl_test(peers_test LABEL unit SOURCES unit/peers_test.c support/fake_env.c support/fake_net.c LIBS sluice_transporter)
sl_test(control_test LABEL unit SOURCES unit/control_test.c support/tmpdir.c LIBS sluice_ipc PkgConfig::ZMQ)
