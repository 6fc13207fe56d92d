sl_test(http_test LABEL unit SOURCES unit/client/tools/http_test.c LIBS sluice_http)
sl_test(http_unauth_test LABEL unit SOURCES unit/client/tools/http_unauth_test.c support/flood.c LIBS sluice_http TIMEOUT 200)
