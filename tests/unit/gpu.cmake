sl_test(kernel_test LABEL unit SOURCES unit/kernel_test.c LIBS sluice_device PkgConfig::XXHASH)
