# A real model on the host device, through the Python package and numpy. Under sanitizers tests/python makes the same calls.
if(NOT SL_SANITIZE)
    sl_python_test(model LABEL model SCRIPT model/model_test.py TIMEOUT 600)
endif()
