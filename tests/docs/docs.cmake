# The site builds: every link leads somewhere, every page is in a section, and the reference knows every program and call. It depends on
# the documents and on what programs print, which a few files hold.
if(Python3_FOUND AND NOT SL_FUZZ AND NOT SL_SANITIZE)
    sl_by_content(launcher OF ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md README.md SECURITY.md actors client cuda/README.md deploy docs ipc
        runtime tests/README.md tests/bench tests/docs tests/engines tests/structure/metrics_table.py tests/support/suite.py)
    add_test(NAME docs/site COMMAND ${launcher} ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/docs_test.py)
    set_tests_properties(docs/site PROPERTIES LABELS docs TIMEOUT 900 SKIP_RETURN_CODE 77 ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin")
endif()
