sl_test(policy_model_test LABEL unit SOURCES unit/policy_model_test.c LIBS sluice_policy_model)
sl_test(recorded_test LABEL unit SOURCES unit/recorded_test.c LIBS sluice_policy_model)
sl_test(rhythm_test LABEL unit SOURCES unit/rhythm_test.c LIBS sluice_rhythm)
# It computes, and what it calls policy_model_test has, too: not under sanitizers.
if(NOT SL_SANITIZE)
    sl_by_content(launcher OF CMakeLists.txt CMakePresets.json runtime client/model client/bench tests/bench/policy tests/support
        tests/unit/policy_shapes_test.c TOOLS "${CMAKE_C_COMPILER} --version")
    sl_test(policy_shapes_test LABEL unit SOURCES unit/policy_shapes_test.c bench/policy/shapes.c LIBS sluice_policy_model LAUNCHER ${launcher})
    target_link_libraries(policy_shapes_test PRIVATE m)
    sl_patient(unit/policy_shapes_test)
endif()
