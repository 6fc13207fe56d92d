# Sanitized actors are slower: limits of time in the tests are multiplied.
set(node_slowdown 1)
if(SL_SANITIZE)
    set(node_slowdown 4)
endif()
add_executable(client_probe ${CMAKE_CURRENT_LIST_DIR}/client_probe.c)
target_link_libraries(client_probe PRIVATE sl_flags sluice)
set_target_properties(client_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT SL_FUZZ)
    add_test(NAME node/object_api COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/node/object_api.py)
    set_tests_properties(node/object_api PROPERTIES LABELS node TIMEOUT 900 SKIP_RETURN_CODE 77 RUN_SERIAL ON
        ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin;SLUICE_TEST_SLOWDOWN=${node_slowdown}")
endif()
# What a killed client held comes back.
add_executable(death_probe ${CMAKE_CURRENT_LIST_DIR}/death_probe.c)
target_link_libraries(death_probe PRIVATE sl_flags sluice)
set_target_properties(death_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
if(Python3_FOUND AND NOT SL_FUZZ)
    add_test(NAME node/death COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/node/death_test.py)
    set_tests_properties(node/death PROPERTIES LABELS node TIMEOUT 600 SKIP_RETURN_CODE 77 RUN_SERIAL ON
        ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin;SLUICE_TEST_SLOWDOWN=${node_slowdown}")
endif()
