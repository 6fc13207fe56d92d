sl_test(handover_test LABEL unit SOURCES unit/handover_test.c LIBS sluice_runtime)
sl_test(copy_test LABEL unit SOURCES unit/copy_test.c LIBS sluice_runtime PkgConfig::XXHASH TIMEOUT 180)
sl_test(runtime_test LABEL unit SOURCES unit/runtime_test.c LIBS sluice_runtime PkgConfig::XXHASH)
sl_test(runtime_edges_test LABEL unit SOURCES unit/runtime_edges_test.c support/tmpdir.c LIBS sluice_runtime)
