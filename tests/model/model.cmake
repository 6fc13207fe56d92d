# A real model on the host device, through the Python package; numpy is asked for by the test. Sanitized, tests/python has
# the same calls.
if(NOT SL_SANITIZE)
    sl_python_test(model LABEL model SCRIPT model/model_test.py TIMEOUT 600)
endif()
