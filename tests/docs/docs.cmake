# The site builds: every link is valid, every page is in a section, and the reference lists every program and call. It depends on the
# documents, and on the help texts of programs, most of which are in a few files.
if(Python3_FOUND AND NOT SL_FUZZ AND NOT SL_SANITIZE)
    set(documents "")
    foreach(folder actors client cuda deploy docs ipc runtime tests)
        file(GLOB_RECURSE found RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${folder}/*.md)
        list(APPEND documents ${found})
    endforeach()
    sl_by_content(launcher OF ${documents} ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md README.md SECURITY.md client/tools/ctl client/examples
        client/include/sluice.h client/lib/sluice.map client/python/sluice/__init__.pyi deploy/install deploy/sluice-node docs ipc/msg/sl_msg_table.h
        runtime/base/sl_config.h runtime/base/sl_error.h tests/docs tests/structure/metrics_table.py tests/support/suite.py)
    add_test(NAME docs/site COMMAND ${launcher} ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/docs_test.py)
    set_tests_properties(docs/site PROPERTIES LABELS docs TIMEOUT 900 SKIP_RETURN_CODE 77 ENVIRONMENT "SLUICE_BIN=${CMAKE_BINARY_DIR}/bin")
endif()
