# The patches of ARCHITECTURE.md's "How to add". They have a build of their own, so once is enough: not in debug builds.
if(Python3_FOUND AND NOT SL_FUZZ AND NOT CMAKE_BUILD_TYPE STREQUAL Debug)
    add_test(NAME examples/patches COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/examples_test.py
        --compiler ${CMAKE_C_COMPILER} --launcher "${CMAKE_C_COMPILER_LAUNCHER}")
    set_tests_properties(examples/patches PROPERTIES LABELS examples TIMEOUT 1800 SKIP_RETURN_CODE 77)
    sl_computes(examples/patches) # not patient: one of its tests starts a node
endif()
