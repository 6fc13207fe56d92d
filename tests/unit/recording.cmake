sl_test(recording_test LABEL unit SOURCES unit/client/tools/recording_test.c support/recording_reader.c LIBS sluice_recording PkgConfig::ZLIB)
