sl_test(kernel_test LABEL unit SOURCES unit/cuda/kernel_test.c LIBS sluice_device PkgConfig::XXHASH)
sl_test(crossover_test LABEL unit SOURCES unit/cuda/crossover_test.c support/tmpdir.c LIBS sluice_device)

# A fake driver on ordinary memory, with the real one's file name in a folder of its own: LD_LIBRARY_PATH finds it.
add_library(fake_cuda SHARED
    support/fake_cuda.c support/fake_cuda_capture.c support/fake_cuda_events.c support/fake_cuda_facts.c support/fake_cuda_images.c
    support/fake_cuda_memory.c support/fake_cuda_streams.c support/fake_cuda_vmm.c support/fake_cuda_wait.c)
target_link_libraries(fake_cuda PRIVATE sl_flags)
# Each thread has a current context and a capture mode. They are in the program's TLS: the leak checker fails on the TLS of a library
# that was loaded later.
target_compile_options(fake_cuda PRIVATE -ftls-model=initial-exec)
set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake)
sl_test(cuda_test LABEL unit SOURCES unit/cuda/cuda_test.c support/tmpdir.c LIBS sluice_device)
target_compile_definitions(cuda_test PRIVATE FAKE_CUDA="$<TARGET_FILE:fake_cuda>")
add_dependencies(cuda_test fake_cuda)
sl_test(cuda_dmabuf_test LABEL unit SOURCES unit/cuda/cuda_dmabuf_test.c LIBS sluice_device)
target_compile_definitions(cuda_dmabuf_test PRIVATE FAKE_CUDA="$<TARGET_FILE:fake_cuda>")
add_dependencies(cuda_dmabuf_test fake_cuda)
sl_test(cuda_wait_test LABEL unit SOURCES unit/cuda/cuda_wait_test.c LIBS sluice_driver)
target_compile_definitions(cuda_wait_test PRIVATE FAKE_CUDA="$<TARGET_FILE:fake_cuda>")
add_dependencies(cuda_wait_test fake_cuda)
sl_test(cuda_open_test LABEL unit SOURCES unit/cuda/cuda_open_test.c LIBS sluice_device)
target_compile_definitions(cuda_open_test PRIVATE FAKE_CUDA="$<TARGET_FILE:fake_cuda>")
add_dependencies(cuda_open_test fake_cuda)
sl_test(cuda_ways_test LABEL unit SOURCES unit/cuda/cuda_ways_test.c support/tmpdir.c LIBS sluice_device)
target_compile_definitions(cuda_ways_test PRIVATE FAKE_CUDA="$<TARGET_FILE:fake_cuda>")
add_dependencies(cuda_ways_test fake_cuda)
# The suite of the device `host`, run on the device `cuda`: plain memory of processes.
add_test(NAME unit/device_process_test_cuda COMMAND device_process_test)
set_tests_properties(unit/device_process_test_cuda PROPERTIES LABELS unit TIMEOUT 600
    ENVIRONMENT "CK_TIMEOUT_MULTIPLIER=5;SLUICE_TEST_DRIVER=$<TARGET_FILE:fake_cuda>")
