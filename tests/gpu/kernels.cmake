# The images of the kernels, and the program that carries them.
if(SL_CUDA AND Python3_FOUND)
    get_property(images GLOBAL PROPERTY SL_KERNEL_FILES)
    add_test(NAME gpu/kernels_code COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/gpu/kernels_code.py
        $<TARGET_FILE:sluice-swapper> ${images})
else()
    add_test(NAME gpu/kernels_code COMMAND ${CMAKE_COMMAND} -E echo "skipped: built without kernels (preset cuda builds them)")
    set_tests_properties(gpu/kernels_code PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: ")
endif()
set_tests_properties(gpu/kernels_code PROPERTIES LABELS gpu TIMEOUT 300)
