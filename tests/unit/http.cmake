sl_test(http_test LABEL unit SOURCES unit/http_test.c LIBS sluice_http)
sl_test(http_strangers_test LABEL unit SOURCES unit/http_strangers_test.c support/flood.c LIBS sluice_http TIMEOUT 200)
