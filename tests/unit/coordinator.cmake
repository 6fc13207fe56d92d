if(TARGET sluice_coordinator)
    sl_test(coordinator_test LABEL unit SOURCES ${CMAKE_CURRENT_LIST_DIR}/coordinator_test.c
        ${CMAKE_CURRENT_LIST_DIR}/../support/fake_env.c LIBS sluice_coordinator)
endif()
