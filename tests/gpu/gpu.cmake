# On a GPU, and also on the driver that plays one (tests/unit/gpu.cmake), so that the suite itself is tested everywhere.
sl_test(gpu_test LABEL gpu SOURCES gpu/gpu_test.c LIBS sluice_device TIMEOUT 240)
sl_node_test(bench_gpu_test LABEL gpu SCRIPT gpu/bench_gpu_test.py TIMEOUT 900)
add_dependencies(gpu_test fake_cuda)
add_executable(engine_probe gpu/engine_probe.c)
target_link_libraries(engine_probe PRIVATE sluice_static sluice_device sl_flags)
set_target_properties(engine_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_executable(engine_speed gpu/engine_speed.c)
target_link_libraries(engine_speed PRIVATE sluice_static sluice_device sl_flags)
set_target_properties(engine_speed PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
# In the check-up's archive the libraries are next to them: RPATH instead of RUNPATH, as for the programs.
foreach(program gpu_test engine_probe engine_speed)
    target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
endforeach()
sl_node_test(device_node_test LABEL gpu SCRIPT gpu/device_node_test.py TIMEOUT 600)
if(NOT SL_SANITIZE)
    add_test(NAME unit/gpu_test_played COMMAND gpu_test)
    set_tests_properties(unit/gpu_test_played PROPERTIES LABELS unit TIMEOUT 1200
        ENVIRONMENT "CK_TIMEOUT_MULTIPLIER=5;FAKE_CUDA_SHARED=1;SLUICE_TEST_DRIVER=$<TARGET_FILE:fake_cuda>")
endif()
# The driver that plays a GPU gets the kernels that a real driver would get from the programs: it accepts what such a driver accepts.
if(SL_CUDA AND Python3_FOUND)
    add_test(NAME gpu/bench_gpu_played COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/gpu/bench_gpu_test.py
        ${CMAKE_BINARY_DIR}/tests/fake)
    set_tests_properties(gpu/bench_gpu_played PROPERTIES LABELS gpu TIMEOUT 900 ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin")
    add_test(NAME gpu/device_node_played COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/gpu/device_node_test.py
        ${CMAKE_BINARY_DIR}/tests/fake)
    set_tests_properties(gpu/device_node_played PROPERTIES LABELS gpu TIMEOUT 600 RUN_SERIAL ON ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin")
    sl_test(swapper_played_test LABEL gpu SOURCES gpu/swapper_played_test.c unit/ipc/msg/stepped_env.c LIBS sluice_swapper)
    set_tests_properties(gpu/swapper_played_test PROPERTIES ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/tests/fake")
    add_dependencies(swapper_played_test fake_cuda)
endif()
# Device memory and a NIC; also played, to test the suite itself.
if(SL_VERBS_INCLUDE)
    sl_test(nic_test LABEL gpu SOURCES gpu/nic_test.c support/fabric_end.c support/fake_verbs.c LIBS sluice_device sluice_fabric TIMEOUT 120)
    add_dependencies(nic_test fake_cuda)
    add_dependencies(gpu_test nic_test) # built together
    if(NOT SL_SANITIZE)
        add_test(NAME unit/nic_test_played COMMAND nic_test)
        set_tests_properties(unit/nic_test_played PROPERTIES LABELS unit TIMEOUT 300
            ENVIRONMENT "CK_TIMEOUT_MULTIPLIER=5;SLUICE_TEST_DRIVER=$<TARGET_FILE:fake_cuda>")
    endif()
endif()
