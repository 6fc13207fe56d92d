# What other suites judge histories by is tested itself.
sl_test(linear_test LABEL unit SOURCES ${CMAKE_CURRENT_LIST_DIR}/linear_test.c LIBS sluice_ipc)
