sl_test(tierer_test LABEL unit SOURCES unit/actors/tierer/tierer_test.c support/fake_env.c support/mem_disk.c LIBS sluice_tierer TIMEOUT 600)
target_link_options(tierer_test PRIVATE -Wl,--wrap=mmap,--wrap=mremap,--wrap=aligned_alloc,--wrap=nanosleep)
sl_test(tierer_budget_test LABEL unit SOURCES unit/actors/tierer/tierer_budget_test.c support/fake_env.c support/mem_disk.c LIBS sluice_tierer)
sl_test(disk_slow_test LABEL unit SOURCES unit/runtime/disk/disk_slow_test.c support/fake_env.c support/tmpdir.c LIBS sluice_tierer)
target_link_options(disk_slow_test PRIVATE
    -Wl,--wrap=ftruncate,--wrap=unlinkat,--wrap=fsync,--wrap=fdatasync,--wrap=fallocate)
