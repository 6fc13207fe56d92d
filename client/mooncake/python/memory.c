/* client/mooncake/python/memory.c - registered buffers, further segments, memory for callers. */
#include "client/mooncake/python/internal.h"
#include "runtime/sl_parse.h"

#include <inttypes.h>
#include <string.h>

/* ---- registration ---- */

static const struct mc_call register_call = {
    "register_buffer", "int", {{"buffer_ptr", MC_NUMBER, NULL}, {"size", MC_NUMBER, NULL}}};
MC_METHOD(mc_register_buffer)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &register_call, args, count, names, values)) {
        return NULL;
    }
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    int code = sl_store_register(store, values[0].number, values[1].number);
    PyEval_RestoreThread(unlocked);
    return PyLong_FromLong(code);
}

static const struct mc_call unregister_call = {
    "unregister_buffer", "int", {{"buffer_ptr", MC_NUMBER, NULL}}};
MC_METHOD(mc_unregister_buffer)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &unregister_call, args, count, names, values)) {
        return NULL;
    }
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    int code = sl_store_unregister(store, values[0].number);
    PyEval_RestoreThread(unlocked);
    return PyLong_FromLong(code);
}

static const struct mc_call pool_call = {"alloc_from_mem_pool", "int", {{"size", MC_NUMBER, NULL}}};
MC_METHOD(mc_alloc_from_mem_pool)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &pool_call, args, count, names, values)) {
        return NULL;
    }
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    uint64_t at = sl_store_pool_alloc(store, values[0].number);
    PyEval_RestoreThread(unlocked);
    return PyLong_FromUnsignedLongLong(at);
}

/* ---- segments ---- */

#define SLAB_BYTES (4 * SL_MIB) /* sizes of allocated segments are rounded up to it */

/* Takes ids. */
static PyObject *mounted(int code, PyObject *ids, bool sized, uint64_t length_bytes)
{
    PyObject *number = PyLong_FromLong(code);
    PyObject *size = PyLong_FromUnsignedLongLong(code == SL_STORE_OK ? length_bytes : 0);
    PyObject *dict = number == NULL || size == NULL || ids == NULL ? NULL : PyDict_New();
    if (dict != NULL && (PyDict_SetItemString(dict, "ret", number) != 0 ||
                         PyDict_SetItemString(dict, "segment_ids", ids) != 0 ||
                         (sized && PyDict_SetItemString(dict, "allocated_size", size) != 0))) {
        Py_CLEAR(dict);
    }
    Py_XDECREF(number);
    Py_XDECREF(size);
    Py_XDECREF(ids);
    return dict;
}

static PyObject *mount(PyObject *self, const char *path, uint64_t offset_bytes,
                       uint64_t length_bytes, bool sized)
{
    struct sl_store *store = mc_store_of(self);
    struct sl_store_segment_id id = {0};
    PyThreadState *unlocked = PyEval_SaveThread();
    int code = sl_store_segment_mount(store, path, offset_bytes, length_bytes, &id);
    PyEval_RestoreThread(unlocked);
    PyObject *ids = PyList_New(0);
    if (ids != NULL && code == SL_STORE_OK) {
        PyObject *text = PyUnicode_FromFormat("%" PRIu64 "-%" PRIu64, id.high, id.low);
        if (text == NULL || PyList_Append(ids, text) != 0) {
            Py_CLEAR(ids);
        }
        Py_XDECREF(text);
    }
    return mounted(code, ids, sized, length_bytes);
}

static const struct mc_call mount_call = {"mount_segment",
                                          "dict",
                                          {{"path", MC_TEXT, NULL},
                                           {"size", MC_NUMBER, NULL},
                                           {"offset", MC_NUMBER, "0"},
                                           {"protocol", MC_TEXT, "'tcp'"},
                                           {"location", MC_TEXT, "''"}}};
MC_METHOD(mc_mount_segment)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &mount_call, args, count, names, values)) {
        return NULL;
    }
    PyObject *result = mount(self, values[0].key.at, values[2].number, values[1].number, false);
    mc_release(&mount_call, values);
    return result;
}

static const struct mc_call allocate_call = {
    "allocate_and_mount_segment",
    "dict",
    {{"size", MC_NUMBER, NULL}, {"protocol", MC_TEXT, "'tcp'"}, {"location", MC_TEXT, "''"}}};
MC_METHOD(mc_allocate_and_mount_segment)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &allocate_call, args, count, names, values)) {
        return NULL;
    }
    uint64_t bytes = values[0].number;
    bytes = bytes > UINT64_MAX - SLAB_BYTES ? bytes : sl_align_up(bytes, SLAB_BYTES);
    PyObject *result = mount(self, NULL, 0, bytes, true);
    mc_release(&allocate_call, values);
    return result;
}

static bool ids_take(const struct mc_keys *texts, struct sl_store_segment_id *out)
{
    for (uint32_t i = 0; i < texts->count; i++) {
        const char *text = texts->at[i].at, *rest = NULL;
        uint64_t high = 0, low = 0;
        if (sl_parse_digits(text, &high, &rest) != SL_OK || *rest != '-' ||
            sl_parse_digits(rest + 1, &low, &rest) != SL_OK || rest != text + texts->at[i].length) {
            return false;
        }
        out[i] = (struct sl_store_segment_id){.high = high, .low = low};
    }
    return true;
}

static const struct mc_call unmount_call = {
    "unmount_segment",
    "int",
    {{"segment_ids", MC_KEYS, NULL}, {"grace_period_seconds", MC_NUMBER, "0"}}};
MC_METHOD(mc_unmount_segment)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &unmount_call, args, count, names, values)) {
        return NULL;
    }
    const struct mc_keys *texts = &values[0].keys;
    struct sl_store *store = mc_store_of(self);
    struct sl_store_segment_id *ids = PyMem_Calloc((size_t)texts->count + 1, sizeof *ids);
    PyObject *result = NULL;
    if (ids == NULL) {
        PyErr_NoMemory();
    } else if (!ids_take(texts, ids)) {
        result = PyLong_FromLong(SL_STORE_INVALID);
    } else {
        PyThreadState *unlocked = PyEval_SaveThread();
        int code = sl_store_segment_unmount(store, ids, texts->count);
        PyEval_RestoreThread(unlocked);
        result = PyLong_FromLong(code);
    }
    PyMem_Free(ids);
    mc_release(&unmount_call, values);
    return result;
}

static const struct mc_call local_disk_call = {
    "unmount_local_disk_segment", "int", {{"grace_period_seconds", MC_NUMBER, "0"}}};
MC_METHOD(mc_unmount_local_disk_segment)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &local_disk_call, args, count, names, values)) {
        return NULL;
    }
    int code = sl_store_is_set_up(mc_store_of(self)) ? SL_STORE_NOT_NOW : SL_STORE_INVALID;
    mc_release(&local_disk_call, values);
    return PyLong_FromLong(code);
}

/* ---- MooncakeHostMemAllocator ---- */

static PyObject *allocator_alloc(PyObject *self, PyObject *size)
{
    uint64_t bytes = 0;
    (void)self;
    if (!sl_glue_u64(size, &bytes)) {
        PyErr_Clear();
        PyErr_SetString(PyExc_TypeError, "alloc(): incompatible function arguments. The following "
                                         "argument types are supported:\n    1. (self: "
                                         "mooncake.store.MooncakeHostMemAllocator, size: int) -> "
                                         "int");
        return NULL;
    }
    PyThreadState *unlocked = PyEval_SaveThread();
    void *at = sl_store_memory_alloc(bytes);
    PyEval_RestoreThread(unlocked);
    if (at == NULL) {
        PyErr_Format(PyExc_RuntimeError, "no shared memory of %" PRIu64 " bytes", bytes);
        return NULL;
    }
    return PyLong_FromVoidPtr(at);
}

static PyObject *allocator_free(PyObject *self, PyObject *address)
{
    uint64_t number = 0;
    (void)self;
    if (!sl_glue_u64(address, &number)) {
        PyErr_Clear();
        PyErr_SetString(PyExc_TypeError, "free(): incompatible function arguments. The following "
                                         "argument types are supported:\n    1. (self: "
                                         "mooncake.store.MooncakeHostMemAllocator, ptr: int) -> "
                                         "int");
        return NULL;
    }
    PyThreadState *unlocked = PyEval_SaveThread();
    int code = sl_store_memory_free((void *)(uintptr_t)number);
    PyEval_RestoreThread(unlocked);
    return PyLong_FromLong(code);
}

static PyMethodDef allocator_methods[] = {
    {"alloc", allocator_alloc, METH_O, "The address of so many bytes; RuntimeError."},
    {"free", allocator_free, METH_O, "0, or -1: it is none of ours."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot allocator_slots[] = {
    {Py_tp_doc, "Shared memory of this process. All allocators are one."},
    {Py_tp_dealloc, (void *)sl_glue_free},
    {Py_tp_methods, allocator_methods},
    {0, NULL},
};
PyType_Spec mc_allocator_spec = {
    .name = "mooncake.store.MooncakeHostMemAllocator",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = allocator_slots,
};

/* ---- functions of the module ---- */

static PyObject *numa_bind(PyObject *module, PyObject *node)
{
    struct sl_error why = {.code = SL_OK};
    long number = PyLong_AsLong(node);
    (void)module;
    if (number == -1 && PyErr_Occurred() != NULL) {
        return NULL;
    }
    if (sl_store_numa_bind(number < -1 || number > INT32_MAX ? -1 : (int)number, &why) != SL_OK) {
        PySys_WriteStderr("mooncake.store: bind_to_numa_node(%ld): %.200s\n", number, why.text);
    }
    return Py_NewRef(Py_None);
}

static PyObject *alloc_addr(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)sl_store_torch_alloc);
}

static PyObject *free_addr(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)sl_store_torch_free);
}

PyMethodDef mc_module_methods[] = {
    {"bind_to_numa_node", numa_bind, METH_O,
     "Binds the calling thread to the CPUs and the memory of a NUMA node."},
    {"get_alloc_func_addr", alloc_addr, METH_NOARGS,
     "Address of void *(ssize_t bytes, int device, void *stream), for torch's pluggable "
     "allocator."},
    {"get_free_func_addr", free_addr, METH_NOARGS,
     "Address of void (void *at, ssize_t bytes, int device, void *stream)."},
    {NULL, NULL, 0, NULL},
};
