sl_test(client_test LABEL unit SOURCES ${CMAKE_CURRENT_LIST_DIR}/client_test.c LIBS sluice_ctl sluice_static
    PkgConfig::JANSSON)
