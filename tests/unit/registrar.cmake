if(TARGET sluice_registrar)
    set(registrar_support unit/actors/registrar/registrar_support.c support/fake_env.c)
    foreach(suite density_test density_keep_test registrar_test registrar_parts_test registrar_admission_test registrar_prealloc_test registrar_contributions_test registrar_replace_test registrar_evict_test registrar_holds_test registrar_disk_test registrar_disks_test registrar_members_test registrar_outlived_test registrar_prefetch_test registrar_reclaim_test registrar_hints_test registrar_restart_test registrar_engine_test registrar_pools_test registrar_populate_test registrar_give_back_test registrar_terms_test)
        sl_test(${suite} LABEL unit SOURCES unit/actors/registrar/${suite}.c ${registrar_support}
            LIBS sluice_registrar TIMEOUT 300)
    endforeach()
    target_link_options(registrar_evict_test PRIVATE -Wl,--wrap=malloc)
    target_link_options(registrar_disk_test PRIVATE -Wl,--wrap=sl_index_ref_live)
    sl_test(registrar_recorder_test LABEL unit SOURCES unit/actors/registrar/registrar_recorder_test.c ${registrar_support}
        support/recording_reader.c LIBS sluice_registrar PkgConfig::ZLIB TIMEOUT 300)
endif()
