sl_test(supervise_test LABEL unit SOURCES unit/supervise_test.c LIBS sluice_supervise)
sl_test(gate_stopped_test LABEL unit SOURCES ${CMAKE_CURRENT_LIST_DIR}/gate_stopped_test.c
    ${PROJECT_SOURCE_DIR}/client/gate/stopped.c LIBS sluice_runtime)
