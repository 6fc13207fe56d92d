# Short runs: nothing lost, nothing wrong, nothing hung, nobody left over, however slow the machine is. How many faults
# there were is told, not demanded. The long one is for people: build/release/bin/thrash --seconds 300.
if(NOT SL_FUZZ)
    set(thrash_options --seconds 25 --margin-ms 60000 --disk 640MiB)
    if(SL_SANITIZE)
        set(thrash_options --seconds 25 --margin-ms 120000 --clients 2 --engines 1 --disk 640MiB)
    endif()
    if(NOT SL_SANITIZE MATCHES thread)
        add_test(NAME fault/thrash COMMAND thrash --seed 1 ${thrash_options})
        add_test(NAME fault/thrash_overflow COMMAND thrash --seed 2 --mode overflow ${thrash_options} --disk 192MiB)
        set_tests_properties(fault/thrash fault/thrash_overflow PROPERTIES LABELS fault TIMEOUT 900)
        sl_computes(fault/thrash fault/thrash_overflow)
    endif()
endif()
