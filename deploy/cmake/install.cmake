# Files of `cmake --install build/release` (GNUInstallDirs): programs, libsluice with its header, its pkg-config file and
# its CMake package, systemd units. The Python packages are not part of it: deploy/wheel makes them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(programs sluice-registrar sluice-keyer sluice-swapper sluice-transporter sluice-tierer sluice-coordinator sluice-supervise sluice-events
    sluice-metrics sluicectl)
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(PROGRAMS deploy/sluice-node DESTINATION ${CMAKE_INSTALL_BINDIR})

# libsluice: sluice.h, and the two headers that it includes, in their folders.
install(TARGETS sluice LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES client/include/sluice.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice)
install(FILES runtime/base/sl_base.h runtime/base/sl_error.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice/runtime/base)

set(generated ${CMAKE_BINARY_DIR}/install)
file(RELATIVE_PATH prefix_from_pc /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix) # so that the tree can be moved
configure_file(deploy/cmake/sluice.pc.in ${generated}/sluice.pc @ONLY)
install(FILES ${generated}/sluice.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
configure_package_config_file(deploy/cmake/sluice-config.cmake.in ${generated}/sluice-config.cmake
    INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${generated}/sluice-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${generated}/sluice-config.cmake ${generated}/sluice-config-version.cmake DESTINATION ${package_dir})

# The units name the programs by their full paths.
file(GLOB units CONFIGURE_DEPENDS deploy/systemd/*@.*)
foreach(unit ${units})
    get_filename_component(name ${unit} NAME)
    file(READ ${unit} text)
    string(REPLACE "/usr/lib/sluice/deploy" "@sluice_bin@" text "${text}")
    string(REPLACE "/usr/lib/sluice/bin" "@sluice_bin@" text "${text}")
    file(WRITE ${generated}/units.in/${name} "${text}")
endforeach()
# At install time: --prefix may differ from the configured one.
install(CODE "
    file(GLOB units \"${generated}/units.in/*\")
    foreach(unit \${units})
        get_filename_component(name \${unit} NAME)
        set(sluice_bin \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
        configure_file(\${unit} \"${generated}/units/\${name}\" @ONLY)
    endforeach()")
install(DIRECTORY ${generated}/units/ deploy/systemd/sluice-.service.d DESTINATION lib/systemd/system)
# The user of the units, and the parent of the nodes' directories.
install(FILES deploy/debian/sluice.sysusers DESTINATION lib/sysusers.d RENAME sluice.conf)
install(FILES deploy/debian/sluice.tmpfiles DESTINATION lib/tmpfiles.d RENAME sluice.conf)
# The line for /dev/shm needs the uid, which systemd-sysusers chooses later.
install(CODE [[message(STATUS "Before the units start, as root: systemd-sysusers && systemd-tmpfiles --create, and, since any user who makes\n"
    "   that directory first keeps a node from starting:\n"
    "   echo \"d /dev/shm/sluice-$(id -u sluice) 0700 sluice sluice -\" >/etc/tmpfiles.d/sluice-shm.conf && systemd-tmpfiles --create sluice-shm.conf")]])
install(DIRECTORY deploy/monitoring/ DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice/monitoring)
install(FILES README.md ARCHITECTURE.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
