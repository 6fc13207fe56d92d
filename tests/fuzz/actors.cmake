# Actors with hostile peers: messages, deaths, time.
if(SL_FUZZ)
    # The interpreter and the fake environment, without a test runner.
    add_library(sl_fuzz_hostile STATIC fuzz/hostile.c fuzz/hostile_node.c support/fake_env.c support/mem_disk.c)
    target_include_directories(sl_fuzz_hostile BEFORE PUBLIC fuzz/without_check)
    target_link_libraries(sl_fuzz_hostile PUBLIC sluice_ipc sl_flags)
endif()
sl_fuzz(fuzz_registrar SOURCES fuzz/fuzz_registrar.c fuzz/registrar_check.c LIBS sl_fuzz_hostile sluice_registrar)
sl_fuzz(fuzz_recover SOURCES fuzz/fuzz_recover.c fuzz/registrar_check.c LIBS sl_fuzz_hostile sluice_registrar)
sl_fuzz(fuzz_coordinator SOURCES fuzz/fuzz_coordinator.c LIBS sl_fuzz_hostile sluice_coordinator)
sl_fuzz(fuzz_swapper SOURCES fuzz/fuzz_swapper.c LIBS sl_fuzz_hostile sluice_swapper)
sl_fuzz(fuzz_small_actors SOURCES fuzz/fuzz_small_actors.c LIBS sl_fuzz_hostile sluice_keyer sluice_transporter)
sl_fuzz(fuzz_transporter SOURCES fuzz/fuzz_transporter.c LIBS sl_fuzz_hostile sluice_transporter)
sl_fuzz(fuzz_tierer SOURCES fuzz/fuzz_tierer.c LIBS sl_fuzz_hostile sluice_tierer PkgConfig::XXHASH)
