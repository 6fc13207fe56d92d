sl_test(tierer_test LABEL unit SOURCES unit/tierer_test.c support/fake_env.c support/mem_disk.c LIBS sluice_tierer TIMEOUT 600)
