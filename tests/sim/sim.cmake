# A whole node in one process. It needs every actor of the node's core.
if(TARGET sluice_registrar AND TARGET sluice_keyer AND TARGET sluice_swapper AND TARGET sluice_coordinator
   AND TARGET sluice_tierer)
    sl_test(sim_node_test LABEL sim SOURCES ${CMAKE_CURRENT_LIST_DIR}/sim.c ${CMAKE_CURRENT_LIST_DIR}/sim_workload.c
        ${CMAKE_CURRENT_LIST_DIR}/sim_putter.c
        ${CMAKE_CURRENT_LIST_DIR}/sim_node_test.c ${CMAKE_CURRENT_SOURCE_DIR}/support/mem_disk.c
        LIBS sluice_tierer sluice_coordinator sluice_registrar sluice_keyer sluice_swapper TIMEOUT 240)
endif()
