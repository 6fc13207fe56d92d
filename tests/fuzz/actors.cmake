# Actors among hostile peers: messages, deaths, time.
if(SL_FUZZ)
    # The interpreter and the fake environment, without a test runner.
    add_library(sl_fuzz_hostile STATIC fuzz/hostile.c fuzz/hostile_node.c support/fake_env.c support/mem_disk.c)
    target_include_directories(sl_fuzz_hostile BEFORE PUBLIC fuzz/without_check)
    target_link_libraries(sl_fuzz_hostile PUBLIC sluice_ipc sl_flags)
endif()
sl_fuzz(fuzz_registrar SOURCES fuzz/fuzz_registrar.c fuzz/registrar_check.c LIBS sl_fuzz_hostile sluice_registrar
    SEEDS fuzz/corpus/registrar.seeds)
sl_fuzz(fuzz_recover SOURCES fuzz/fuzz_recover.c fuzz/registrar_check.c LIBS sl_fuzz_hostile sluice_registrar
    SEEDS fuzz/corpus/recover.seeds)
sl_fuzz(fuzz_coordinator SOURCES fuzz/fuzz_coordinator.c LIBS sl_fuzz_hostile sluice_coordinator
    SEEDS fuzz/corpus/coordinator.seeds)
sl_fuzz(fuzz_swapper SOURCES fuzz/fuzz_swapper.c LIBS sl_fuzz_hostile sluice_swapper
    SEEDS fuzz/corpus/swapper.seeds)
sl_fuzz(fuzz_small_actors SOURCES fuzz/fuzz_small_actors.c LIBS sl_fuzz_hostile sluice_keyer sluice_transporter
    SEEDS fuzz/corpus/small_actors.seeds)
sl_fuzz(fuzz_transporter SOURCES fuzz/fuzz_transporter.c LIBS sl_fuzz_hostile sluice_transporter
    SEEDS fuzz/corpus/transporter.seeds)
sl_fuzz(fuzz_tierer SOURCES fuzz/fuzz_tierer.c LIBS sl_fuzz_hostile sluice_tierer PkgConfig::XXHASH
    SEEDS fuzz/corpus/tierer.seeds)
sl_fuzz(fuzz_rail SOURCES fuzz/fuzz_rail.c LIBS sl_fuzz_hostile sluice_transporter SEEDS fuzz/corpus/rail.seeds)
