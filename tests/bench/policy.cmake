# What policies of eviction hit, by the registrar's own code: tests/policy_model --help
if(TARGET sluice_registrar)
    add_executable(policy_model ${CMAKE_CURRENT_LIST_DIR}/policy/main.c ${CMAKE_CURRENT_LIST_DIR}/policy/policies.c
        ${CMAKE_CURRENT_LIST_DIR}/policy/shapes.c ${CMAKE_CURRENT_LIST_DIR}/policy/picture.c)
    target_link_libraries(policy_model PRIVATE sluice_registrar sluice_bench_model sl_flags PkgConfig::JANSSON m)
    set_target_properties(policy_model PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()
