# The images of the kernels, and the program that carries them.
if(SL_CUDA AND Python3_FOUND)
    get_property(images GLOBAL PROPERTY SL_KERNEL_FILES)
    add_test(NAME gpu/kernels_code COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/gpu/kernels_code.py
        $<TARGET_FILE:sluice-swapper> ${images})
else()
    add_test(NAME gpu/kernels_code COMMAND ${CMAKE_COMMAND} -E echo "skipped: built without kernels (nvcc was not found; SL_CUDA=ON takes clang)")
    set_tests_properties(gpu/kernels_code PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: ")
endif()
set_tests_properties(gpu/kernels_code PROPERTIES LABELS gpu TIMEOUT 300)

# The PTX that a driver compiles, run on the CPU: translated to C, and compared with the kernels' bodies.
if(SL_CUDA AND Python3_FOUND AND CHECK_FOUND)
    set(ptx_code ${CMAKE_CURRENT_BINARY_DIR}/kernels_ptx.c)
    add_custom_command(OUTPUT ${ptx_code}
        COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/gpu/ptx_to_c.py ${ptx_code} ${images}
        DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/gpu/ptx_to_c.py ${images} COMMENT "kernels_ptx.c" VERBATIM)
    sl_test(kernels_run LABEL gpu SOURCES gpu/kernels_run.c ${ptx_code} LIBS sluice_device TIMEOUT 300)
    set_source_files_properties(${ptx_code} PROPERTIES COMPILE_OPTIONS
        "-w;-fno-strict-aliasing") # a register has the type that each instruction uses
endif()
