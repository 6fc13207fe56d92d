# Text from people, files and peers: keys, requests of HTTP.
sl_fuzz(fuzz_keys SOURCES fuzz/fuzz_keys.c LIBS sluice_keys SEEDS fuzz/corpus/keys DICT fuzz/corpus/json.dict)
sl_fuzz(fuzz_ctl SOURCES fuzz/fuzz_ctl.c LIBS sl_fuzz_hostile sluice_ctl SEEDS fuzz/corpus/ctl DICT fuzz/corpus/json.dict)
if(TARGET fuzz_ctl)
    target_link_options(fuzz_ctl PRIVATE -Wl,--wrap=ctl_script_print)
endif()
sl_fuzz(fuzz_http SOURCES fuzz/fuzz_http.c LIBS sluice_http SEEDS fuzz/corpus/http)
