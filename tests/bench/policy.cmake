# Hits of eviction policies, by the registrar's own code: tests/policy_model --help
add_executable(policy_model ${CMAKE_CURRENT_LIST_DIR}/policy/main.c ${CMAKE_CURRENT_LIST_DIR}/policy/shapes.c
    ${CMAKE_CURRENT_LIST_DIR}/policy/picture.c ${CMAKE_CURRENT_LIST_DIR}/policy/workload.c)
target_link_libraries(policy_model PRIVATE sluice_policy_model sl_flags PkgConfig::JANSSON m)
set_target_properties(policy_model PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
