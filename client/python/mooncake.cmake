# The Python package mooncake, in build/PRESET/python: mooncake.store is the target mooncake_store, the rest is Python.
set(mooncake_files __init__.py async_store.py cli.py engine.py http_metadata_server.py lmcache_connector.py mooncake_config.py py.typed)
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/mooncake/store.pyi)
    list(APPEND mooncake_files store.pyi)
endif()
foreach(file ${mooncake_files})
    configure_file(mooncake/${file} ${CMAKE_BINARY_DIR}/python/mooncake/${file} COPYONLY)
    install(FILES mooncake/${file} DESTINATION mooncake COMPONENT mooncake EXCLUDE_FROM_ALL)
endforeach()

# What deploy/wheel packs for it: also a whole node, and what its programs need that is not on every Linux with Python.
set(mooncake_programs sluice-registrar sluice-keyer sluice-swapper sluice-transporter sluice-tierer sluice-coordinator sluicectl)
foreach(program mooncake_master mooncake_client)
    if(TARGET ${program})
        list(APPEND mooncake_programs ${program})
    else()
        message(STATUS "${program} is not built here: the wheel of mooncake will not have it")
    endif()
endforeach()
foreach(program ${mooncake_programs})
    # RPATH and not RUNPATH, as for the modules.
    target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib"
        BUILD_WITH_INSTALL_RPATH ON) # one that CMake replaces has empty entries before: the current directory
    install(TARGETS ${program} RUNTIME_DEPENDENCY_SET mooncake_needs RUNTIME DESTINATION mooncake/bin COMPONENT mooncake EXCLUDE_FROM_ALL)
endforeach()
install(PROGRAMS ${CMAKE_SOURCE_DIR}/deploy/sluice-node DESTINATION mooncake/bin COMPONENT mooncake EXCLUDE_FROM_ALL)
set(mooncake_targets sluice ${mooncake_programs})
if(TARGET mooncake_store)
    list(APPEND mooncake_targets mooncake_store)
    install(TARGETS mooncake_store LIBRARY DESTINATION mooncake COMPONENT mooncake EXCLUDE_FROM_ALL)
else()
    message(STATUS "mooncake.store is not built here: the wheel of mooncake will not have it")
endif()
install(TARGETS sluice RUNTIME_DEPENDENCY_SET mooncake_needs LIBRARY DESTINATION mooncake/lib COMPONENT mooncake EXCLUDE_FROM_ALL NAMELINK_SKIP)
install(RUNTIME_DEPENDENCY_SET mooncake_needs
    PRE_EXCLUDE_REGEXES ${python_everywhere}
    LIBRARY DESTINATION mooncake/lib COMPONENT mooncake EXCLUDE_FROM_ALL)
add_custom_target(mooncake_package DEPENDS ${mooncake_targets})
