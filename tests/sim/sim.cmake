# The supervisor's own functions and a simulated world, in one shell.
if(Python3_FOUND AND NOT SL_SANITIZE)
    sl_by_content(launcher OF deploy/sluice-node tests/sim/script_test.py tests/sim/script_world.bash tests/support/suite.py
        TOOLS "bash --version" "${Python3_EXECUTABLE} --version")
    sl_node_test(script LABEL sim SCRIPT sim/script_test.py TIMEOUT 900 LAUNCHER ${launcher})
    if(TEST sim/script)
        sl_computes(sim/script) # its clock is simulated, but bash is not: untested under CPU starvation
    endif()
endif()
# Whole nodes in one process, clients included. It needs every actor of a node.
if(TARGET sluice_registrar AND TARGET sluice_keyer AND TARGET sluice_swapper AND TARGET sluice_coordinator
   AND TARGET sluice_tierer AND TARGET sluice_transporter AND TARGET sluice_static)
    add_library(sl_sim_support OBJECT sim/sim.c sim/sim_disk.c sim/sim_network.c sim/sim_fabric.c sim/sim_program.c
        sim/sim_redis.c sim/sim_redis_store.c sim/sim_process.c sim/sim_tcp.c sim/sim_supervisor.c sim/sim_workload.c sim/sim_seeds.c
        ${CMAKE_SOURCE_DIR}/client/tools/supervise/hang.c)
    target_link_libraries(sl_sim_support PRIVATE sl_flags PkgConfig::CHECK)
    # sl_sim(NAME SOURCE... SEEDS n): the simulator (sim_program.c) answers libsluice's calls to the system.
    # SEEDS: the number under sanitizers, where runs take ten times as long.
    function(sl_sim name)
        cmake_parse_arguments(arg "" "SEEDS" "SOURCES" ${ARGN})
        set(sources "")
        foreach(source ${arg_SOURCES})
            list(APPEND sources ${CMAKE_SOURCE_DIR}/tests/sim/${source}.c)
        endforeach()
        sl_test(${name} LABEL sim SOURCES ${sources} $<TARGET_OBJECTS:sl_sim_support> ${CMAKE_SOURCE_DIR}/tests/support/mem_disk.c
            LIBS sluice_tierer sluice_coordinator sluice_registrar sluice_keyer sluice_swapper sluice_transporter
                sluice_static TIMEOUT 300)
        sl_patient(sim/${name})
        foreach(symbol sl_clock_monotonic_ns clock_gettime getrandom getpid nanosleep ppoll pthread_cond_timedwait
                sl_proc_id_self sl_descriptors_serve sl_mailbox_open sl_mailbox_close sl_mailbox_send sl_mailbox_receive sl_mailbox_fd
                sl_mailbox_spin sl_mailbox_sleep sl_mailbox_connect_count sl_digest_copy sl_index_unchanged sl_pins_take
                sl_pins_take_grant socket connect getsockopt setsockopt epoll_ctl epoll_wait send recv close)
            target_link_options(${name} PRIVATE -Wl,--wrap=${symbol})
        endforeach()
        if(SL_SANITIZE)
            target_compile_definitions(${name} PRIVATE SEEDS_STANDARD=${arg_SEEDS}u)
        endif()
    endfunction()
    sl_sim(sim_node_test SOURCES sim_contest sim_objects sim_node_mutants sim_node_test SEEDS 150)
    foreach(symbol reg_claim_quarantine reg_remove_wait reg_remove_done reg_tombstone_add reg_object_replace reg_copy_required
            sl_pins_view_scan sl_settled_open sl_settled_commit sl_settled_committed sl_settled_removed mem_disk_names_sync sup_hang_look)
        target_link_options(sim_node_test PRIVATE -Wl,--wrap=${symbol})
    endforeach()
    add_test(NAME sim/sim_heal_test COMMAND sim_node_test --heal WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(sim/sim_heal_test PROPERTIES LABELS sim TIMEOUT 1500)
    sl_patient(sim/sim_heal_test)
    sl_sim(sim_cluster_test SOURCES sim_far sim_handover sim_mutants sim_cluster_test SEEDS 40)
    # Calls between the files of an actor that a mutant replaces (sim_mutants.c).
    foreach(symbol tr_pull tr_pulls_fence tr_handover_fence tr_lend tr_pull_piece tr_pools_over sl_fabric_post co_fence_start
            co_direct_call)
        target_link_options(sim_cluster_test PRIVATE -Wl,--wrap=${symbol})
    endforeach()
    sl_sim(sim_directory_test SOURCES sim_far sim_directory_mutants sim_directory_test SEEDS 20)
    foreach(symbol sl_directory_hold sl_directory_feed_republish sl_directory_publish sl_directory_lookup)
        target_link_options(sim_directory_test PRIVATE -Wl,--wrap=${symbol})
    endforeach()
    if(NOT SL_SANITIZE)
        add_test(NAME sim/sim_directory_mutants_test COMMAND sim_directory_test --mutants
            WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        add_test(NAME sim/sim_node_mutants_test COMMAND sim_node_test --mutants WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        add_test(NAME sim/sim_mutants_test COMMAND sim_cluster_test --mutants WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        set_tests_properties(sim/sim_mutants_test sim/sim_node_mutants_test sim/sim_directory_mutants_test
            PROPERTIES LABELS sim TIMEOUT 600)
        sl_patient(sim/sim_mutants_test sim/sim_node_mutants_test sim/sim_directory_mutants_test)
    endif()
    sl_sim(sim_churn_test SOURCES sim_churn_test SEEDS 2)
    sl_sim(sim_members_test SOURCES sim_members_test SEEDS 20)
    sl_sim(sim_pools_test SOURCES sim_pools_test SEEDS 10)
endif()
