# A model of a node's hits with another memory size, policy or disk: bench/policy.
set(policy ${CMAKE_CURRENT_SOURCE_DIR}/bench/policy)
add_library(sluice_policy_model STATIC ${policy}/clairvoyant.c ${policy}/count.c ${policy}/disk.c ${policy}/hints.c ${policy}/memory_density.c
    ${policy}/memory_lru.c ${policy}/prefetch.c ${policy}/restart.c ${policy}/run.c ${policy}/trace.c)
target_link_libraries(sluice_policy_model PUBLIC sl_flags sluice_density sluice_sessions sluice_runtime PRIVATE PkgConfig::JANSSON)
sl_test(policy_model_test LABEL unit SOURCES unit/tests/policy_model_test.c LIBS sluice_policy_model)
sl_test(policy_hints_test LABEL unit SOURCES unit/tests/policy_hints_test.c LIBS sluice_policy_model)
sl_test(sessions_test LABEL unit SOURCES unit/runtime/policy/sessions_test.c LIBS sluice_sessions)
# It only computes, in code that policy_model_test covers: not under sanitizers.
if(NOT SL_SANITIZE)
    sl_by_content(launcher OF CMakeLists.txt CMakePresets.json runtime tests/bench/policy tests/support
        tests/unit/tests/policy_shapes_test.c TOOLS "${CMAKE_C_COMPILER} --version")
    sl_test(policy_shapes_test LABEL unit SOURCES unit/tests/policy_shapes_test.c bench/policy/shapes.c bench/policy/workload.c LIBS sluice_policy_model LAUNCHER ${launcher})
    target_link_libraries(policy_shapes_test PRIVATE m)
    sl_patient(unit/policy_shapes_test)
endif()
