# Shm files, arena, allocator, index, pins.
foreach(suite shm_file huge arena alloc index index_changes index_leases index_hostile index_kill pins pins_litmus settled counts labels seen prealloc)
    sl_test(${suite}_test LABEL unit SOURCES unit/ipc/shm/${suite}_test.c LIBS sluice_ipc TIMEOUT 120)
endforeach()

# The index once more, with a kill point after every store and a hook before every load.
set(SHM_INDEX_SOURCES "")
foreach(source sl_index.c index_changes.c index_fetch.c index_leases.c index_reader.c index_records.c index_recover.c index_regions.c index_writer.c)
    list(APPEND SHM_INDEX_SOURCES ${CMAKE_SOURCE_DIR}/ipc/shm/${source})
endforeach()
add_library(sl_index_killable OBJECT ${SHM_INDEX_SOURCES})
target_link_libraries(sl_index_killable PRIVATE sl_flags)
target_compile_definitions(sl_index_killable PRIVATE SL_INDEX_KILL_POINTS)
foreach(suite index_crash index_interleave)
    sl_test(${suite}_test LABEL unit SOURCES unit/ipc/shm/${suite}_test.c $<TARGET_OBJECTS:sl_index_killable> LIBS sluice_ipc
        TIMEOUT 300)
    target_compile_definitions(${suite}_test PRIVATE SL_INDEX_KILL_POINTS)
endforeach()
