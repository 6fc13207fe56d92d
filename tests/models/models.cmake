# Promela models, whole and without each of their fences or rules; skipped where spin is not installed.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT SL_FUZZ AND NOT SL_SANITIZE)
    foreach(model calls pins queue)
        add_test(NAME models/${model} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/models_test.py ${model})
        set_tests_properties(models/${model} PROPERTIES LABELS models TIMEOUT 900 SKIP_RETURN_CODE 77)
        sl_patient(models/${model})
    endforeach()
endif()
