# The check-up of a machine with a GPU (tests/gpu/checkup): itself with made-up steps, all of it on the driver that plays a GPU, and its
# archive, unpacked elsewhere. The programs of the last two need the kernels, as gpu.cmake says.
add_custom_target(checkup_programs DEPENDS sluice-registrar sluice-keyer sluice-swapper sluice-transporter sluice-tierer sluice-coordinator sluice-supervise
    sluicectl sluice gpu_test engine_probe engine_speed parts_probe fake_cuda)
if(TARGET mooncake_store)
    add_dependencies(checkup_programs sluice_python mooncake_store)
endif()
if(NOT SL_SANITIZE) # it runs no program of this tree
    sl_node_test(checkup_test LABEL gpu SCRIPT gpu/checkup_test.py TIMEOUT 600)
endif()
if(SL_CUDA AND Python3_FOUND)
    add_test(NAME gpu/checkup_played COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/gpu/checkup --played --out ${CMAKE_BINARY_DIR}/checkup)
    add_test(NAME gpu/checkup_archive COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/gpu/checkup_archive_test.py)
    set_tests_properties(gpu/checkup_played gpu/checkup_archive PROPERTIES LABELS gpu TIMEOUT 600
        ENVIRONMENT "CHECKUP_PYTHON=${Python3_EXECUTABLE}")
    set_tests_properties(gpu/checkup_played PROPERTIES RUN_SERIAL ON)
endif()
