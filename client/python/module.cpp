/* client/python/module.cpp - the module sluice._native: exceptions, forks, uses of objects. */
#include "client/python/internal.hpp"

#include <pthread.h>

namespace py
{

types kinds;

/* ---- forks ---- */

static volatile unsigned fork_count;

unsigned forks()
{
    return fork_count;
}

static void forked()
{
    fork_count = fork_count + 1;
}

/* ---- uses of objects ---- */

void life::enter()
{
    if (!open || foreign()) {
        refuse(SL_ERR_INVALID, texts[open ? 1 : 0]);
    }
    uses++;
}

void life::leave()
{
    uses--;
    if (uses == 0 && !open) {
        end();
    }
}

void life::close()
{
    open = false;
    if (uses == 0) {
        end();
    }
}

/* ---- exceptions ---- */

[[noreturn]] static void raise(sl_err code, int os_code, const char *words, PyObject *result)
{
    PyObject *type = kinds.errors[code > SL_OK && code < SL_ERR_COUNT ? code : SL_OK];
    const ref message = give(words[0] != '\0' ? words : sl_err_text(code));
    const ref raising = own(PyObject_CallFunctionObjArgs(type, message.get(), nullptr));
    set_attribute(raising.get(), "os_code", give(os_code));
    if (result != nullptr) {
        check(PyObject_SetAttrString(raising.get(), "result", result) == 0);
    }
    PyErr_SetObject(type, raising.get());
    throw raised();
}

void refuse(sl_err code, const sl_error *why, PyObject *result)
{
    const bool worded = why != nullptr && why->code == code;
    raise(code, worded ? why->os_code : 0, worded ? why->text : "", result);
}

void refuse(sl_err code, const char *words)
{
    raise(code, 0, words, nullptr);
}

/* Takes records and exceptions from sluice/_results.py and makes them attributes of the module. A
 * package that is imported again after it left sys.modules gets the same module dict. */
static void results_take(PyObject *module)
{
    const ref results = own(PyImport_ImportModule("sluice._results"));
    PyObject **const records[] = {&kinds.object_info,  &kinds.reason,    &kinds.node_info,
                                  &kinds.cluster_info, &kinds.op_result, &kinds.pool_info};
    const ref types = own(PyObject_GetAttrString(results.get(), "RECORDS"));
    for (size_t i = 0; i < std::size(records); i++) {
        *records[i] = own(PySequence_GetItem(types.get(), static_cast<Py_ssize_t>(i))).release();
    }
    const ref codes = list_of(SL_ERR_COUNT, [](size_t code) {
        return tuple(code, sl_err_name(static_cast<sl_err>(code)),
                     sl_err_text(static_cast<sl_err>(code)));
    });
    const ref errors = own(PyObject_CallMethod(results.get(), "errors", "O", codes.get()));
    for (size_t i = 0; i < SL_ERR_COUNT; i++) {
        kinds.errors[i] =
            own(PySequence_GetItem(errors.get(), static_cast<Py_ssize_t>(i))).release();
    }
    const ref names = own(PyObject_GetAttrString(results.get(), "__all__"));
    for (Py_ssize_t i = 0; i < PyList_Size(names.get()); i++) {
        PyObject *name = PyList_GetItem(names.get(), i);
        const ref value = own(PyObject_GetAttr(results.get(), name));
        check(PyObject_SetAttr(module, name, value.get()) == 0);
    }
}

/* ---- the module ---- */

static PyObject *module_make()
{
    static methods functions;
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                     "sluice._native",
                                     "libsluice for Python; use the package sluice.",
                                     -1, /* state is kept for the process */
                                     nullptr,
                                     nullptr,
                                     nullptr,
                                     nullptr,
                                     nullptr};
    if (functions.empty()) {
        (void)pthread_atfork(nullptr, nullptr, forked);
        rules_methods(functions);
        add(functions, last_method);
        definition.m_methods = functions.data();
    }
    ref module = own(PyModule_Create(&definition));
    results_take(module.get());
    client_add(module.get());
    view_add(module.get());
    batches_add(module.get());
    engine_add(module.get());
    pool_add(module.get());
    check(PyModule_AddStringConstant(module.get(), "__version__", SL_VERSION) == 0);
    return module.release();
}

} // namespace py

PyMODINIT_FUNC PyInit__native(void); /* CPython finds it by name */
PyMODINIT_FUNC PyInit__native(void)
{
    return py::guarded([] { return py::module_make(); });
}
