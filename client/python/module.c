/* client/python/module.c - the module sluice._native: its types, its exceptions, what forks.
 */
#include "client/python/internal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- forks ---- */

/* The one thing that is of the process and not of the module. */
static volatile unsigned forks;

static void forked(void)
{
    forks++;
}

static void forks_watch(void)
{
    (void)pthread_atfork(NULL, NULL, forked);
}

unsigned sl_py_forks(void)
{
    return forks;
}

/* ---- exceptions ---- */

/* Name and the built-in exception that it is as well; by code. */
#define NAMED(code, name, base) [code] = {name, base}
static const struct {
    const char *name;
    const char *base;
} error_names[SL_ERR_COUNT] = {
    NAMED(SL_ERR_NOT_FOUND, "NotFoundError", "LookupError"),
    NAMED(SL_ERR_EXISTS, "ExistsError", NULL),
    NAMED(SL_ERR_BUSY, "BusyError", NULL),
    NAMED(SL_ERR_LIMIT, "LimitError", NULL),
    NAMED(SL_ERR_TIMEOUT, "DeadlineError", "TimeoutError"),
    NAMED(SL_ERR_NO_SPACE, "NoSpaceError", NULL),
    NAMED(SL_ERR_NO_MEMORY, "NoMemoryError", "MemoryError"),
    NAMED(SL_ERR_UNREACHABLE, "UnreachableError", "ConnectionError"),
    NAMED(SL_ERR_CANCELLED, "CancelledError", NULL),
    NAMED(SL_ERR_STALE, "StaleError", NULL),
    NAMED(SL_ERR_PEER_DIED, "PeerDiedError", NULL),
    NAMED(SL_ERR_PROTOCOL, "ProtocolError", NULL),
    NAMED(SL_ERR_VERSION, "VersionError", NULL),
    NAMED(SL_ERR_PERMISSION, "NotPermittedError", NULL),
    NAMED(SL_ERR_INVALID, "InvalidError", "ValueError"),
    NAMED(SL_ERR_UNSUPPORTED, "UnsupportedError", NULL),
    NAMED(SL_ERR_CONFIG, "ConfigError", "ValueError"),
    NAMED(SL_ERR_CORRUPT, "CorruptError", NULL),
    NAMED(SL_ERR_FOREIGN, "ForeignError", NULL),
    NAMED(SL_ERR_IO, "IoError", NULL),
    NAMED(SL_ERR_OS, "SystemCallError", NULL),
    NAMED(SL_ERR_DEVICE, "DeviceError", NULL),
    NAMED(SL_ERR_DRAINING, "DrainingError", NULL),
    NAMED(SL_ERR_INCOMPLETE, "IncompleteError", NULL),
    NAMED(SL_ERR_INTERNAL, "InternalError", NULL),
    NAMED(SL_ERR_HANDOVER, "HandoverError", NULL),
    NAMED(SL_ERR_LEASED, "LeasedError", NULL),
    NAMED(SL_ERR_LEASE_OVER, "LeaseOverError", NULL),
    NAMED(SL_ERR_DISK_AWAY, "DiskAwayError", NULL),
};

/* Gives the exception, ready to be raised. */
static PyObject *error_new(struct py_state *state, sl_err code, int os_code, const char *text)
{
    PyObject *type = code > SL_OK && code < SL_ERR_COUNT ? state->errors[code] : state->error;
    PyObject *message = sl_glue_text(text[0] != '\0' ? text : sl_err_text(code));
    PyObject *raised = message == NULL ? NULL : PyObject_CallFunctionObjArgs(type, message, NULL);
    PyObject *os = raised == NULL ? NULL : PyLong_FromLong(os_code);
    if (os != NULL && PyObject_SetAttrString(raised, "os_code", os) != 0) {
        Py_CLEAR(raised);
    }
    Py_XDECREF(os);
    Py_XDECREF(message);
    return raised;
}

static PyObject *raise_it(PyObject *raised)
{
    if (raised != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
        Py_DECREF(raised);
    }
    return NULL;
}

PyObject *sl_py_raise(struct py_state *state, sl_err code, const struct sl_error *why)
{
    bool worded = why != NULL && why->code == code;
    return raise_it(error_new(state, code, worded ? why->os_code : 0, worded ? why->text : ""));
}

PyObject *sl_py_raise_text(struct py_state *state, sl_err code, const char *text)
{
    return raise_it(error_new(state, code, 0, text));
}

PyObject *sl_py_raise_result(struct py_state *state, const struct sl_op_result *from,
                             PyObject *result)
{
    bool worded = from->why.code == from->code;
    PyObject *raised =
        error_new(state, from->code, worded ? from->why.os_code : 0, worded ? from->why.text : "");
    if (raised != NULL && PyObject_SetAttrString(raised, "result", result) != 0) {
        Py_CLEAR(raised);
    }
    return raise_it(raised);
}

/* Gives SluiceError's subclass for a code. */
static PyObject *error_type(const struct py_state *state, PyObject *builtins, sl_err code)
{
    char name[64];
    (void)snprintf(name, sizeof name, "sluice.%s", error_names[code].name);
    PyObject *bases = NULL;
    if (error_names[code].base == NULL) {
        bases = PyTuple_Pack(1, state->error);
    } else {
        PyObject *other = PyObject_GetAttrString(builtins, error_names[code].base);
        bases = other == NULL ? NULL : PyTuple_Pack(2, state->error, other);
        Py_XDECREF(other);
    }
    PyObject *type =
        bases == NULL ? NULL : PyErr_NewExceptionWithDoc(name, sl_err_text(code), bases, NULL);
    Py_XDECREF(bases);
    if (type != NULL &&
        (sl_glue_attribute_add(type, "code", PyLong_FromLong(code)) != 0 ||
         sl_glue_attribute_add(type, "name", sl_glue_text(sl_err_name(code))) != 0)) {
        Py_CLEAR(type);
    }
    return type;
}

static int errors_add(PyObject *module, struct py_state *state)
{
    state->error =
        PyErr_NewExceptionWithDoc("sluice.SluiceError",
                                  "What libsluice could not do. code: its number; name: the "
                                  "number's name; os_code: errno, or 0; result: of an op "
                                  "that failed, else None.",
                                  NULL, NULL);
    if (state->error == NULL ||
        sl_glue_attribute_add(state->error, "code", PyLong_FromLong(SL_ERR_INTERNAL)) != 0 ||
        sl_glue_attribute_add(state->error, "name", sl_glue_text("SL_ERR_?")) != 0 ||
        sl_glue_attribute_add(state->error, "os_code", PyLong_FromLong(0)) != 0 ||
        PyObject_SetAttrString(state->error, "result", Py_None) != 0 ||
        PyModule_AddObjectRef(module, "SluiceError", state->error) != 0) {
        return -1;
    }
    PyObject *builtins = PyImport_ImportModule("builtins");
    int failed = builtins == NULL ? -1 : 0;
    for (int code = 1; failed == 0 && code < SL_ERR_COUNT; code++) {
        if (error_names[code].name == NULL) { /* a code that this file does not know yet */
            state->errors[code] = Py_NewRef(state->error);
            continue;
        }
        state->errors[code] = error_type(state, builtins, (sl_err)code);
        failed = state->errors[code] == NULL
                     ? -1
                     : PyModule_AddObjectRef(module, error_names[code].name, state->errors[code]);
    }
    Py_XDECREF(builtins);
    return failed;
}

/* CODES: {"NOT_FOUND": 1, ...}, from which the package makes its enum. */
static int codes_add(PyObject *module)
{
    PyObject *codes = PyDict_New();
    for (int code = 0; codes != NULL && code < SL_ERR_COUNT; code++) {
        const char *name = sl_err_name((sl_err)code);
        name += strncmp(name, "SL_ERR_", 7) == 0 ? 7 : 3;
        PyObject *number = PyLong_FromLong(code);
        if (number == NULL || PyDict_SetItemString(codes, name, number) != 0) {
            Py_CLEAR(codes);
        }
        Py_XDECREF(number);
    }
    int failed = codes == NULL ? -1 : PyModule_AddObjectRef(module, "CODES", codes);
    Py_XDECREF(codes);
    return failed;
}

/* ---- the module ---- */

static struct PyModuleDef module_definition;

struct py_state *sl_py_state(PyObject *object)
{
    return PyType_GetModuleState(Py_TYPE(object));
}

static int result_add(PyObject *module, PyStructSequence_Desc *desc, PyTypeObject **out)
{
    *out = PyStructSequence_NewType(desc);
    return *out == NULL ? -1 : PyModule_AddType(module, *out);
}

static int module_exec(PyObject *module)
{
    static pthread_once_t watched = PTHREAD_ONCE_INIT;
    struct py_state *state = PyModule_GetState(module);
    (void)pthread_once(&watched, forks_watch);
    if (sl_glue_type_add(module, &sl_py_client_spec, &state->client) != 0 ||
        sl_glue_type_add(module, &sl_py_view_spec, &state->view) != 0 ||
        sl_glue_type_add(module, &sl_py_batches_spec, &state->batches) != 0 ||
        sl_glue_type_add(module, &sl_py_engine_spec, &state->engine) != 0 ||
        sl_glue_type_add(module, &sl_py_memory_spec, &state->memory) != 0 ||
        sl_glue_type_add(module, &sl_py_op_spec, &state->op) != 0 ||
        sl_glue_type_add(module, &sl_py_pool_spec, &state->pool) != 0 ||
        result_add(module, &sl_py_pool_info_desc, &state->pool_info) != 0 ||
        result_add(module, &sl_py_object_info_desc, &state->object_info) != 0 ||
        result_add(module, &sl_py_story_desc, &state->story) != 0 ||
        result_add(module, &sl_py_node_info_desc, &state->node_info) != 0 ||
        result_add(module, &sl_py_cluster_info_desc, &state->cluster_info) != 0 ||
        result_add(module, &sl_py_op_result_desc, &state->op_result) != 0 ||
        errors_add(module, state) != 0 || codes_add(module) != 0) {
        return -1;
    }
    return PyModule_AddStringConstant(module, "__version__", SL_VERSION);
}

static_assert(sizeof(struct py_state) % sizeof(PyObject *) == 0, "nothing but references");

static PyMethodDef module_methods[] = {
    {"handover_mode", sl_py_handover_mode, METH_NOARGS,
     "What FD_PD_TRANSFER_VIA_STORAGE says: HANDOVER_BY_STORAGE or HANDOVER_DIRECT. ConfigError: "
     "it says anything else."},
    {"look_prefix", sl_py_look_prefix, METH_VARARGS,
     "look_prefix(classes, count)\n--\n\nThe longest prefix of at most count blocks that is there in "
     "all classes of pools, pairs of a bitmap of Engine.look_there and a window."},
    {"set_origin", (PyCFunction)(void (*)(void))sl_py_set_origin, METH_VARARGS | METH_KEYWORDS,
     "set_origin(request=None, traceparent=None)\n--\n\nWhere the ops that this thread starts from "
     "now on come from: what the engine calls its request, by which sluicectl explain --request "
     "finds them, and a W3C trace context, of whose trace python -m sluice.otel makes them spans."},
    {"team_number", sl_py_team_number, METH_O,
     "team_number(name)\n--\n\nThe number of a team, of what its processes have in common and "
     "nobody else has: a str or bytes, 16 or more."},
    {"store_config", (PyCFunction)(void (*)(void))sl_py_store_config, METH_VARARGS | METH_KEYWORDS,
     "store_config(mode=None, global_segment_size=None, local_buffer_size=None, "
     "enable_offload=None)\n--\n\nChecks the texts of a connector's configuration, each and "
     "together, and gives a dict of what they mean; sizes in bytes. ConfigError names what is "
     "wrong."},
    {"pool_creator", (PyCFunction)(void (*)(void))sl_py_pool_creator, METH_VARARGS | METH_KEYWORDS,
     "pool_creator(*, profiling=False, host_blocks=0, storage=False, split=False)\n--\n\nWho "
     "makes the device pools of a deployment: 'engine' or 'sluice'."},
    {"required_bytes", sl_py_required_bytes, METH_O,
     "required_bytes(buffers)\n--\n\nWhat a store in a process of its own has to map of pairs of "
     "an address and a length: the sum over distinct ones. InvalidError: two of them overlap."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};
static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "sluice._native",
    .m_doc = "libsluice for Python; use the package sluice.",
    .m_size = sizeof(struct py_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = sl_glue_traverse,
    .m_clear = sl_glue_clear,
    .m_free = sl_glue_module_free,
};

PyMODINIT_FUNC PyInit__native(void); /* found by name */
PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module_definition);
}
