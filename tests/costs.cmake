# Seconds that suites took while others ran, on two cores, the longer of release and asan; those of 15 and more. CTest starts the most
# expensive first, so that no long one runs by itself at the end. deploy/test lists the slowest: add those that this table lacks. Suites
# that share a lock wait for each other, so each counts the time of all that still follow.
set(SL_COSTS
    cluster/directory 220 # lock: memory
    cluster/lend 150      # lock: memory
    cluster/rails 160
    cluster/notify 160
    node/away 160
    node/upgrade 190
    node/disks 160
    node/supervise 125
    sim/sim_node_test 120
    cluster/nodes 110
    cluster/handover 105
    cluster/pull 135
    node/disk_start 100
    node/prefetch 110
    cluster/handover_pools 105
    node/metrics 95
    examples/patches 90
    fault/disk_crash_bed 80
    python/vllm_handover_node 80
    node/containers 85
    node/mooncake 85
    python/contract_valgrind 75
    unit/fabric_places_test 70
    unit/fabric_test 70
    unit/keys_cross_check 65
    sim/sim_node_mutants_test 65
    unit/device_process_test_cuda 60
    node/replay 60        # lock: memory
    node/admission 60
    cluster/unauth 60
    node/pieces 60
    node/handover 55
    node/object_api 45
    python/store 45
    python/vllm_native_node 45
    python/wheel 40
    unit/gpu_test_played 40
    cluster/mooncake 35
    models/pins 35
    node/truncate 35
    python/rank_layers 35
    sim/sim_cluster_test 35
    unit/codec_test 35
    unit/index_kill_test 35
    unit/registrar_contributions_test 35
    fault/thrash 30
    fault/thrash_overflow 30
    fault/thrash_upgrade 40
    node/supervisor 30
    node/users 30
    python/connector_vllm 30
    sim/sim_heal_test 30
    unit/loans_test 30
    unit/transporter_layout_test 30
    fault/disk_restart 25
    python/contract_terms 25
    fault/disk_vanish 20
    gpu/checkup_test 20
    node/monitoring 20
    node/pools 20
    node/replace 20
    node/terms 20
    node/version 20
    python/batches 20
    python/connector_fastdeploy 20
    python/contract_processes 20
    python/package 20
    python/sglang 20
    unit/cuda_test 20
    unit/device_process_test 20
    unit/http_test 20
    node/directory_redis_test 15
    node/lives 15
    node/putting 15
    python/lmcache_native 15)

function(sl_costs_set)
    while(SL_COSTS)
        list(POP_FRONT SL_COSTS name seconds)
        if(TEST ${name})
            get_test_property(${name} COST begins)
            if(begins) # it computes
                math(EXPR seconds "${seconds} + ${begins}")
            endif()
            set_tests_properties(${name} PROPERTIES COST ${seconds})
        endif()
    endwhile()
    # Serial suites leave slots and cores free, for minutes: so they run first, while most compute-bound work can still run next to them.
    get_property(all DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} PROPERTY TESTS)
    foreach(name ${all})
        get_test_property(${name} RUN_SERIAL alone)
        if(alone)
            set_tests_properties(${name} PROPERTIES COST 5000)
        endif()
    endforeach()
endfunction()

# Suites of which a run of deploy/test takes a fifth, chosen by the commit, unless --all is given (support/rotation.py). Under sanitizers
# these are all suites that start or simulate real processes: release runs those at every commit, and they cost two to five times as much
# under sanitizers. In release these are the most expensive ones that have found nothing for long.
set(SL_ROTATING node/replay python/contract_valgrind rdma/nodes sim/sim_directory_mutants_test sim/sim_mutants_test
    sim/sim_node_mutants_test)
# Check programs whose tests share one process under sanitizers, where a fork costs more than a test: none of them waits for a signal,
# leaves threads or memory, or sets what the next one reads. In release every test has a process of its own.
set(SL_UNFORKED unit/codec_test unit/coordinator_hybrid_test unit/coordinator_notify_test unit/density_test unit/directory_test unit/peers_test
    unit/transporter_pools_test)
function(sl_kinds_set)
    get_property(all DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} PROPERTY TESTS)
    foreach(name ${all})
        if(name IN_LIST SL_ROTATING OR (SL_SANITIZE AND name MATCHES "^(cluster|fault|model|node|python|rdma|sim)/"))
            set_property(TEST ${name} APPEND PROPERTY LABELS rotating)
        endif()
        if(SL_SANITIZE AND name IN_LIST SL_UNFORKED)
            set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT CK_FORK=no)
        endif()
    endforeach()
endfunction()
