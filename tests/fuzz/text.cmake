# JSON and text from people and files: keys, traces.
sl_fuzz(fuzz_keys SOURCES fuzz/fuzz_keys.c LIBS sluice_keys SEEDS fuzz/corpus/keys DICT fuzz/corpus/json.dict)
sl_fuzz(fuzz_trace SOURCES fuzz/fuzz_trace.c LIBS sluice_ctl SEEDS fuzz/corpus/trace DICT fuzz/corpus/json.dict)
if(SL_FUZZ)
    set(ctl_sources "")
    foreach(source ctl_arguments ctl_status ctl_trace ctl_keys ctl_config)
        list(APPEND ctl_sources ${CMAKE_SOURCE_DIR}/client/${source}.c)
    endforeach()
endif()
sl_fuzz(fuzz_ctl SOURCES fuzz/fuzz_ctl.c ${ctl_sources} LIBS sl_fuzz_hostile sluice_ctl sluice_static sluice_keys
    PkgConfig::JANSSON SEEDS fuzz/corpus/ctl DICT fuzz/corpus/json.dict)
