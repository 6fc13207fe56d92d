/* client/mooncake/python/descriptor.c - ReplicaDescriptor and what it holds. */
#include "client/mooncake/python/internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- Descriptor: where a value lies ---- */

struct mc_descriptor {
    PyObject_HEAD uint64_t length_bytes, buffer_address;
    PyObject *transport_endpoint;
};

static void descriptor_dealloc(PyObject *object)
{
    Py_CLEAR(((struct mc_descriptor *)(void *)object)->transport_endpoint);
    sl_glue_free(object);
}

static PyObject *descriptor_make(PyTypeObject *type, uint64_t length_bytes, const char *endpoint)
{
    PyObject *object = sl_glue_new(type);
    if (object != NULL) {
        struct mc_descriptor *self = (struct mc_descriptor *)(void *)object;
        self->length_bytes = length_bytes;
        self->transport_endpoint = sl_glue_text(endpoint);
        if (self->transport_endpoint == NULL) {
            Py_CLEAR(object);
        }
    }
    return object;
}

static PyObject *descriptor_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    if (PyTuple_Size(args) != 0 || (names != NULL && PyDict_Size(names) != 0)) {
        PyErr_SetString(PyExc_TypeError, "__init__(): mooncake.store.Descriptor()");
        return NULL;
    }
    return descriptor_make(type, 0, "");
}

static PyObject *descriptor_size(PyObject *object, void *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong(((struct mc_descriptor *)(void *)object)->length_bytes);
}

static int descriptor_size_set(PyObject *object, PyObject *value, void *none)
{
    (void)none;
    uint64_t number = 0;
    if (value == NULL || !sl_glue_u64(value, &number)) {
        PyErr_SetString(PyExc_TypeError, "Descriptor.size: int");
        return -1;
    }
    ((struct mc_descriptor *)(void *)object)->length_bytes = number;
    return 0;
}

static PyObject *descriptor_address(PyObject *object, void *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong(((struct mc_descriptor *)(void *)object)->buffer_address);
}

static int descriptor_address_set(PyObject *object, PyObject *value, void *none)
{
    (void)none;
    uint64_t number = 0;
    if (value == NULL || !sl_glue_u64(value, &number)) {
        PyErr_SetString(PyExc_TypeError, "Descriptor.buffer_address: int");
        return -1;
    }
    ((struct mc_descriptor *)(void *)object)->buffer_address = number;
    return 0;
}

static PyObject *descriptor_endpoint(PyObject *object, void *none)
{
    (void)none;
    return Py_NewRef(((struct mc_descriptor *)(void *)object)->transport_endpoint);
}

static int descriptor_endpoint_set(PyObject *object, PyObject *value, void *none)
{
    struct mc_descriptor *self = (struct mc_descriptor *)(void *)object;
    (void)none;
    if (value == NULL || !PyUnicode_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "Descriptor.transport_endpoint: str");
        return -1;
    }
    PyObject *old = self->transport_endpoint;
    self->transport_endpoint = Py_NewRef(value);
    Py_DECREF(old);
    return 0;
}

static PyObject *descriptor_text(PyObject *object)
{
    const struct mc_descriptor *self = (struct mc_descriptor *)(void *)object;
    return PyUnicode_FromFormat("<Descriptor size=%" PRIu64 " buffer_address=%" PRIu64
                                " transport_endpoint=%R>",
                                self->length_bytes, self->buffer_address, self->transport_endpoint);
}

static PyGetSetDef descriptor_attributes[] = {
    {"size", descriptor_size, descriptor_size_set, "Bytes of the value.", NULL},
    {"buffer_address", descriptor_address, descriptor_address_set,
     "0: a value has no address that means anything in another process.", NULL},
    {"transport_endpoint", descriptor_endpoint, descriptor_endpoint_set, "The segment.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot descriptor_slots[] = {
    {Py_tp_doc, "Where a value lies in memory."}, {Py_tp_new, (void *)descriptor_new},
    {Py_tp_dealloc, (void *)descriptor_dealloc},  {Py_tp_getset, descriptor_attributes},
    {Py_tp_repr, (void *)descriptor_text},        {0, NULL},
};
PyType_Spec mc_descriptor_spec = {
    .name = "mooncake.store.Descriptor",
    .basicsize = sizeof(struct mc_descriptor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = descriptor_slots,
};

/* ---- MemoryDescriptor: one attribute ---- */

struct mc_memory {
    PyObject_HEAD PyObject *buffer_descriptor;
};

static void memory_dealloc(PyObject *object)
{
    Py_CLEAR(((struct mc_memory *)(void *)object)->buffer_descriptor);
    sl_glue_free(object);
}

static PyObject *memory_buffer(PyObject *object, void *none)
{
    (void)none;
    return Py_NewRef(((struct mc_memory *)(void *)object)->buffer_descriptor);
}

static PyGetSetDef memory_attributes[] = {
    {"buffer_descriptor", memory_buffer, NULL, "A Descriptor.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot memory_slots[] = {
    {Py_tp_doc, "A replica in memory."},
    {Py_tp_dealloc, (void *)memory_dealloc},
    {Py_tp_getset, memory_attributes},
    {0, NULL},
};
PyType_Spec mc_memory_descriptor_spec = {
    .name = "mooncake.store.MemoryDescriptor",
    .basicsize = sizeof(struct mc_memory),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = memory_slots,
};

/* ---- DiskDescriptor: of replicas that this store never has ---- */

static PyObject *disk_path(PyObject *object, void *none)
{
    (void)object;
    (void)none;
    return PyUnicode_FromString("");
}

static PyObject *disk_size(PyObject *object, void *none)
{
    (void)object;
    (void)none;
    return PyLong_FromLong(0);
}

static PyGetSetDef disk_attributes[] = {
    {"file_path", disk_path, NULL, "The file.", NULL},
    {"object_size", disk_size, NULL, "Bytes of the value.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot disk_slots[] = {
    {Py_tp_doc, "A replica on a shared file system."},
    {Py_tp_dealloc, (void *)sl_glue_free},
    {Py_tp_getset, disk_attributes},
    {0, NULL},
};
PyType_Spec mc_disk_descriptor_spec = {
    .name = "mooncake.store.DiskDescriptor",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = disk_slots,
};

/* ---- ReplicaDescriptor ---- */

struct mc_replica {
    PyObject_HEAD struct sl_store_replica replica;
};

static const struct sl_store_replica *replica_of(PyObject *object)
{
    return &((struct mc_replica *)(void *)object)->replica;
}

PyObject *mc_replica_new(struct mc_state *state, const struct sl_store_replica *replica)
{
    PyObject *object = sl_glue_new(state->replica);
    if (object != NULL) {
        ((struct mc_replica *)(void *)object)->replica = *replica;
    }
    return object;
}

static PyObject *replica_status(PyObject *object, void *none)
{
    (void)none;
    return Py_NewRef(mc_state_of(object)->replica_complete);
}

static PyObject *replica_is_memory(PyObject *object, PyObject *none)
{
    (void)none;
    return PyBool_FromLong(replica_of(object)->in_memory);
}

static PyObject *replica_is_disk(PyObject *object, PyObject *none)
{
    (void)object;
    (void)none;
    return PyBool_FromLong(0);
}

static PyObject *replica_is_local_disk(PyObject *object, PyObject *none)
{
    (void)none;
    return PyBool_FromLong(!replica_of(object)->in_memory);
}

static PyObject *replica_memory(PyObject *object, PyObject *none)
{
    struct mc_state *state = mc_state_of(object);
    const struct sl_store_replica *replica = replica_of(object);
    (void)none;
    if (!replica->in_memory) {
        PyErr_SetString(PyExc_RuntimeError, "it is no replica in memory");
        return NULL;
    }
    PyObject *made = sl_glue_new(state->memory_descriptor);
    if (made == NULL) {
        return NULL;
    }
    struct mc_memory *memory = (struct mc_memory *)(void *)made;
    memory->buffer_descriptor =
        descriptor_make(state->descriptor, replica->length_bytes, replica->segment);
    if (memory->buffer_descriptor == NULL) {
        Py_CLEAR(made);
    }
    return made;
}

static PyObject *replica_disk(PyObject *object, PyObject *none)
{
    (void)object;
    (void)none;
    PyErr_SetString(PyExc_RuntimeError, "it is no replica on a shared file system");
    return NULL;
}

static PyMethodDef replica_methods[] = {
    {"is_memory_replica", replica_is_memory, METH_NOARGS, "Whether it is in memory."},
    {"is_disk_replica", replica_is_disk, METH_NOARGS, "Whether it is on a shared file system."},
    {"is_local_disk_replica", replica_is_local_disk, METH_NOARGS,
     "Whether it is on the node's disk."},
    {"get_memory_descriptor", replica_memory, METH_NOARGS, "RuntimeError when it is not."},
    {"get_disk_descriptor", replica_disk, METH_NOARGS, "RuntimeError when it is not."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef replica_attributes[] = {
    {"status", replica_status, NULL, "A ReplicaStatus.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot replica_slots[] = {
    {Py_tp_doc, "One place where a value is."},
    {Py_tp_dealloc, (void *)sl_glue_free},
    {Py_tp_methods, replica_methods},
    {Py_tp_getset, replica_attributes},
    {0, NULL},
};
PyType_Spec mc_replica_spec = {
    .name = "mooncake.store.ReplicaDescriptor",
    .basicsize = sizeof(struct mc_replica),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = replica_slots,
};
