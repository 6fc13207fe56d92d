# A whole node in one process, clients included. It needs every actor of the node's core.
if(TARGET sluice_registrar AND TARGET sluice_keyer AND TARGET sluice_swapper AND TARGET sluice_coordinator
   AND TARGET sluice_tierer AND TARGET sluice_static)
    sl_test(sim_node_test LABEL sim SOURCES ${CMAKE_CURRENT_LIST_DIR}/sim.c ${CMAKE_CURRENT_LIST_DIR}/sim_disk.c
        ${CMAKE_CURRENT_LIST_DIR}/sim_program.c ${CMAKE_CURRENT_LIST_DIR}/sim_workload.c
        ${CMAKE_CURRENT_LIST_DIR}/sim_objects.c ${CMAKE_CURRENT_LIST_DIR}/sim_node_test.c
        ${CMAKE_CURRENT_SOURCE_DIR}/support/mem_disk.c
        LIBS sluice_tierer sluice_coordinator sluice_registrar sluice_keyer sluice_swapper sluice_static TIMEOUT 300)
    # What libsluice asks of the system is answered by the simulator (sim_program.c).
    foreach(symbol sl_clock_monotonic_ns clock_gettime getrandom getpid nanosleep ppoll pthread_cond_timedwait
            sl_proc_id_self sl_mailbox_open sl_mailbox_close sl_mailbox_send sl_mailbox_receive sl_mailbox_fds sl_mailbox_spin sl_mailbox_sleep
            sl_mailbox_connect_count sl_digest_copy sl_index_unchanged sl_pins_take sl_pins_take_grant)
        target_link_options(sim_node_test PRIVATE -Wl,--wrap=${symbol})
    endforeach()
    # Runs are ten times as slow under sanitizers.
    if(SL_SANITIZE)
        target_compile_definitions(sim_node_test PRIVATE SEEDS_STANDARD=150u)
    endif()
endif()
