sl_test(mooncake_flags_test LABEL unit SOURCES unit/mooncake_flags_test.c support/tmpdir.c LIBS sluice_mooncake_flags)
target_compile_definitions(mooncake_flags_test PRIVATE $<$<BOOL:${YAML_FOUND}>:SL_HAVE_YAML>)
sl_test(mooncake_join_test LABEL unit SOURCES unit/mooncake_join_test.c support/tmpdir.c LIBS sluice_mooncake_join)
