sl_test(policy_model_test LABEL unit SOURCES unit/policy_model_test.c LIBS sluice_policy_model)
sl_test(recorded_test LABEL unit SOURCES unit/recorded_test.c LIBS sluice_policy_model)
sl_test(rhythm_test LABEL unit SOURCES unit/rhythm_test.c LIBS sluice_rhythm)
