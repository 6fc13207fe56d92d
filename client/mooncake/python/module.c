/* client/mooncake/python/module.c - the module mooncake.store: its types and its enums. */
#include "client/mooncake/python/internal.h"

static struct PyModuleDef module_definition;

/* A type that was derived is of no module, or of another one: a base of it is of ours. (What asks
 * for that, PyType_GetModuleByDef, is not in the stable ABI of 3.11.) */
struct mc_state *mc_state_of(PyObject *object)
{
    for (PyTypeObject *type = Py_TYPE(object); type != NULL;
         type = PyType_GetSlot(type, Py_tp_base)) {
        PyObject *module = PyType_GetModule(type);
        if (module != NULL && PyModule_GetDef(module) == &module_definition) {
            return PyModule_GetState(module);
        }
        PyErr_Clear();
    }
    return NULL; /* not reached: objects are made by types of ours */
}

/* ---- enums ---- */

static const char *const soft_pin_names[] = {"PRESERVE", "ENABLE", "DISABLE", NULL};
static const char *const data_type_names[] = {
    "UNKNOWN",  "KVCACHE",         "TENSOR",   "WEIGHT",  "SAMPLE", "ACTIVATION",
    "GRADIENT", "OPTIMIZER_STATE", "METADATA", "GENERAL", NULL};
static const char *const status_names[] = {"UNDEFINED", "INITIALIZED", "PROCESSING", "COMPLETE",
                                           "REMOVED",   "FAILED",      NULL};

/* {"A": 0, "B": 1, ...} */
static PyObject *members_of(const char *const *names)
{
    PyObject *members = PyDict_New();
    for (long i = 0; members != NULL && names[i] != NULL; i++) {
        PyObject *number = PyLong_FromLong(i);
        if (number == NULL || PyDict_SetItemString(members, names[i], number) != 0) {
            Py_CLEAR(members);
        }
        Py_XDECREF(number);
    }
    return members;
}

/* An enum whose members are ints as well, and whose text is "Name.MEMBER". */
static PyObject *enum_make(const char *name, const char *const *names)
{
    PyObject *module = PyImport_ImportModule("enum");
    PyObject *base = module == NULL ? NULL : PyObject_GetAttrString(module, "IntEnum");
    PyObject *plain = module == NULL ? NULL : PyObject_GetAttrString(module, "Enum");
    PyObject *text = plain == NULL ? NULL : PyObject_GetAttrString(plain, "__str__");
    PyObject *members = members_of(names);
    PyObject *args = members == NULL ? NULL : Py_BuildValue("(sO)", name, members);
    PyObject *words = Py_BuildValue("{s:s}", "module", "mooncake.store");
    PyObject *made = base == NULL || text == NULL || args == NULL || words == NULL
                         ? NULL
                         : PyObject_Call(base, args, words);
    if (made != NULL && PyObject_SetAttrString(made, "__str__", text) != 0) {
        Py_CLEAR(made);
    }
    Py_XDECREF(module);
    Py_XDECREF(base);
    Py_XDECREF(plain);
    Py_XDECREF(text);
    Py_XDECREF(members);
    Py_XDECREF(args);
    Py_XDECREF(words);
    return made;
}

static int enum_add(PyObject *module, const char *name, const char *const *names, bool hoisted,
                    PyObject **out)
{
    *out = enum_make(name, names);
    int failed = *out == NULL ? -1 : PyModule_AddObjectRef(module, name, *out);
    for (int i = 0; hoisted && failed == 0 && names[i] != NULL; i++) {
        PyObject *member = PyObject_GetAttrString(*out, names[i]);
        failed = member == NULL ? -1 : PyModule_AddObjectRef(module, names[i], member);
        Py_XDECREF(member);
    }
    return failed;
}

/* ---- the module ---- */

static int module_exec(PyObject *module)
{
    struct mc_state *state = PyModule_GetState(module);
    if (sl_glue_type_add(module, &mc_store_spec, &state->store) != 0 ||
        sl_glue_type_add(module, &mc_config_spec, &state->config) != 0 ||
        sl_glue_type_add(module, &mc_buffer_spec, &state->buffer) != 0 ||
        sl_glue_type_add(module, &mc_allocator_spec, &state->allocator) != 0 ||
        sl_glue_type_add(module, &mc_replica_spec, &state->replica) != 0 ||
        sl_glue_type_add(module, &mc_memory_descriptor_spec, &state->memory_descriptor) != 0 ||
        sl_glue_type_add(module, &mc_disk_descriptor_spec, &state->disk_descriptor) != 0 ||
        sl_glue_type_add(module, &mc_descriptor_spec, &state->descriptor) != 0 ||
        enum_add(module, "SoftPinAction", soft_pin_names, false, &state->soft_pin_action) != 0 ||
        enum_add(module, "ObjectDataType", data_type_names, true, &state->data_type) != 0 ||
        enum_add(module, "ReplicaStatus", status_names, true, &state->replica_status) != 0) {
        return -1;
    }
    state->replica_complete = PyObject_GetAttrString(state->replica_status, "COMPLETE");
    return state->replica_complete == NULL
               ? -1
               : PyModule_AddStringConstant(module, "__version__", SL_VERSION);
}

static_assert(sizeof(struct mc_state) % sizeof(PyObject *) == 0, "nothing but references");

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};
static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "mooncake.store",
    .m_doc = "Mooncake's store on a node of Sluice.",
    .m_size = sizeof(struct mc_state),
    .m_methods = mc_module_methods,
    .m_slots = module_slots,
    .m_traverse = sl_glue_traverse,
    .m_clear = sl_glue_clear,
    .m_free = sl_glue_module_free,
};

PyMODINIT_FUNC PyInit_store(void); /* found by name */
PyMODINIT_FUNC PyInit_store(void)
{
    return PyModuleDef_Init(&module_definition);
}
