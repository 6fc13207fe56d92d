# The machine code of the kernels, in the image and in the program that carries it.
if(SL_CUDA AND Python3_FOUND)
    add_test(NAME gpu/kernels_code COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/gpu/kernels_code.py
        ${CMAKE_BINARY_DIR}/cuda/kernels.fatbin $<TARGET_FILE:sluice-swapper>)
else()
    add_test(NAME gpu/kernels_code COMMAND ${CMAKE_COMMAND} -E echo "skipped: built without kernels (preset cuda builds them)")
    set_tests_properties(gpu/kernels_code PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: ")
endif()
set_tests_properties(gpu/kernels_code PROPERTIES LABELS gpu TIMEOUT 300)
