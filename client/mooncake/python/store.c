/* client/mooncake/python/store.c - the type MooncakeDistributedStore: its life and its methods. */
#include "client/mooncake/python/internal.h"

#include <string.h>

struct sl_store *mc_store_of(PyObject *self)
{
    return ((struct mc_store *)(void *)self)->store;
}

/* Arguments are for __init__, which a derived type may have of its own. */
static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    (void)args;
    (void)names;
    PyObject *object = sl_glue_new(type);
    if (object != NULL && sl_store_create(&((struct mc_store *)(void *)object)->store) != SL_OK) {
        Py_DECREF(object);
        return PyErr_NoMemory();
    }
    return object;
}

static int store_init(PyObject *object, PyObject *args, PyObject *names)
{
    (void)object;
    if (PyTuple_Size(args) != 0 || (names != NULL && PyDict_Size(names) != 0)) {
        PyErr_SetString(PyExc_TypeError,
                        "__init__(): incompatible constructor arguments. The following argument "
                        "types are supported:\n    1. mooncake.store.MooncakeDistributedStore()");
        return -1;
    }
    return 0;
}

/* Of a derived type, too: CPython ends what that has besides, and calls this one last. It is not
 * collected itself (it refers to no object); derived types, which may be, visit their own type. */
static void store_dealloc(PyObject *object)
{
    struct mc_store *self = (struct mc_store *)(void *)object;
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_store_destroy(&self->store);
    PyEval_RestoreThread(unlocked);
    sl_glue_free(object);
}

/* ---- setup ---- */

#define SETUP_ARGUMENTS_MAX 13
enum {
    SETUP_HOST,
    SETUP_METADATA,
    SETUP_SEGMENT,
    SETUP_BUFFER,
    SETUP_PROTOCOL,
    SETUP_DEVICES,
    SETUP_MASTER,
    SETUP_ENGINE,
    SETUP_OFFLOAD,
    SETUP_OFFLOAD_PATH,
    SETUP_TENANT,
    SETUP_HTTP,
    SETUP_HTTP_PORT,
};
static const struct mc_argument setup_arguments[SETUP_ARGUMENTS_MAX] = {
    {"local_hostname", MC_TEXT, NULL},
    {"metadata_server", MC_TEXT, NULL},
    {"global_segment_size", MC_NUMBER, NULL},
    {"local_buffer_size", MC_NUMBER, NULL},
    {"protocol", MC_TEXT, NULL},
    {"rdma_devices", MC_TEXT, NULL},
    {"master_server_addr", MC_TEXT, NULL},
    {"engine", MC_OBJECT, "None"},
    {"enable_ssd_offload", MC_FLAG, "False"},
    {"ssd_offload_path", MC_TEXT, "''"},
    {"tenant_id", MC_TEXT, "'default'"},
    {"enable_client_http_server", MC_FLAG, "False"},
    {"client_http_port", MC_NUMBER, "9300"},
};
#define SETUP_SIGNATURES                                                                      \
    "    1. (self: mooncake.store.MooncakeDistributedStore, local_hostname: str, "            \
    "metadata_server: str, global_segment_size: int, local_buffer_size: int, protocol: str, " \
    "rdma_devices: str, master_server_addr: str, engine: object = None, enable_ssd_offload: " \
    "bool = False, ssd_offload_path: str = '', tenant_id: str = 'default', "                  \
    "enable_client_http_server: bool = False, client_http_port: int = 9300) -> int\n"         \
    "    2. (self: mooncake.store.MooncakeDistributedStore, config: dict) -> int"

static PyObject *setup_mismatch(PyObject *names)
{
    if (PyErr_Occurred() != NULL && PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return NULL;
    }
    PyErr_Clear();
    PyObject *given = names == NULL ? PyUnicode_FromString("") : PyObject_Str(names);
    if (given != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "setup(): incompatible function arguments. The following argument types are "
                     "supported:\n" SETUP_SIGNATURES "\n\nInvoked with: kwargs: %U",
                     given);
        Py_DECREF(given);
    }
    return NULL;
}

/* Says why, once: the number alone helps nobody. */
static PyObject *setup_result(const char *what, int code, const struct sl_error *why)
{
    if (code != SL_STORE_OK) {
        PySys_WriteStderr("mooncake.store: %s gives %d: %.240s\n", what, code, why->text);
    } else if (why->text[0] != '\0') {
        PySys_WriteStderr("mooncake.store: %s: the node is degraded: %.240s\n", what, why->text);
    }
    return PyLong_FromLong(code);
}

static PyObject *setup_carry_out(PyObject *self, const struct sl_store_setup *setup)
{
    struct sl_error why = {.code = SL_OK};
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    int code = sl_store_setup(store, setup, &why);
    PyEval_RestoreThread(unlocked);
    return setup_result("setup", code, &why);
}

static int setup_place(PyObject *name)
{
    for (int i = 0; i < SETUP_ARGUMENTS_MAX; i++) {
        if (PyUnicode_CompareWithASCIIString(name, setup_arguments[i].name) == 0) {
            return i;
        }
    }
    return -1;
}

static bool setup_collect(PyObject *const *args, Py_ssize_t count, PyObject *names,
                          PyObject **objects)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < count && i < SETUP_ARGUMENTS_MAX; i++) {
        objects[i] = args[i];
    }
    for (Py_ssize_t i = 0; i < named; i++) {
        int place = setup_place(PyTuple_GetItem(names, i));
        if (place < 0 || objects[place] != NULL) {
            return false;
        }
        objects[place] = args[count + i];
    }
    for (int i = 0; i <= SETUP_MASTER; i++) {
        if (objects[i] == NULL) {
            return false;
        }
    }
    return count <= SETUP_ARGUMENTS_MAX;
}

static bool text_take(PyObject *object, const char **out)
{
    struct sl_object_key text;
    if (object == NULL) {
        return true;
    }
    if (!mc_string_take(object, &text) || strlen(text.at) != text.length) {
        return false;
    }
    *out = text.at;
    return true;
}

/* Texts are borrowed from their objects, which the caller of the method holds. */
static bool setup_take(PyObject *const *objects, struct sl_store_setup *out)
{
    uint64_t port = 0;
    const char *path = NULL;
    *out = (struct sl_store_setup){.tenant = "default"};
    return text_take(objects[SETUP_HOST], &out->local_hostname) &&
           text_take(objects[SETUP_METADATA], &out->metadata_server) &&
           sl_glue_u64(objects[SETUP_SEGMENT], &out->segment_bytes) &&
           sl_glue_u64(objects[SETUP_BUFFER], &out->local_buffer_bytes) &&
           text_take(objects[SETUP_PROTOCOL], &out->protocol) &&
           text_take(objects[SETUP_DEVICES], &out->rdma_devices) &&
           text_take(objects[SETUP_MASTER], &out->master_server_addr) &&
           text_take(objects[SETUP_OFFLOAD_PATH], &path) &&
           text_take(objects[SETUP_TENANT], &out->tenant) &&
           (objects[SETUP_HTTP_PORT] == NULL || sl_glue_u64(objects[SETUP_HTTP_PORT], &port));
}

/* ---- setup(config) ---- */

/* A setup that is refused closes what was set up, as one that fails does. */
static PyObject *setup_refuse(PyObject *self, const struct sl_error *why)
{
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    (void)sl_store_close(store);
    PyEval_RestoreThread(unlocked);
    return setup_result("setup", SL_STORE_INVALID, why);
}

/* The text under a name, or under its older one; *held belongs to the caller. */
static bool dict_text(PyObject *dict, const char *name, const char *older, PyObject **held,
                      const char **out)
{
    PyObject *value = PyDict_GetItemString(dict, name);
    if (value == NULL && older != NULL) {
        value = PyDict_GetItemString(dict, older);
    }
    *held = value == NULL ? NULL : PyObject_Str(value);
    if (value != NULL && *held == NULL) {
        return false;
    }
    return text_take(*held, out);
}

#define DICT_TEXTS 8
static PyObject *setup_dict_take(PyObject *self, PyObject *dict, PyObject **held)
{
    struct sl_store_setup setup = {
        .tenant = "default", .master_server_addr = "127.0.0.1:50051", .protocol = "tcp"};
    struct sl_store_settings sizes = {.mode = NULL};
    if (!dict_text(dict, "local_hostname", NULL, &held[0], &setup.local_hostname) ||
        !dict_text(dict, "metadata_server", NULL, &held[1], &setup.metadata_server) ||
        !dict_text(dict, "global_segment_size", NULL, &held[2], &sizes.global_segment_size) ||
        !dict_text(dict, "local_buffer_size", NULL, &held[3], &sizes.local_buffer_size) ||
        !dict_text(dict, "protocol", NULL, &held[4], &setup.protocol) ||
        !dict_text(dict, "rdma_devices", "device_name", &held[5], &setup.rdma_devices) ||
        !dict_text(dict, "master_server_addr", "master_server_address", &held[6],
                   &setup.master_server_addr) ||
        !dict_text(dict, "tenant_id", NULL, &held[7], &setup.tenant)) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    struct sl_store_config parsed;
    if (setup.local_hostname == NULL || setup.metadata_server == NULL) {
        (void)snprintf(why.text, sizeof why.text, "local_hostname and metadata_server are needed");
        return setup_refuse(self, &why);
    }
    if (sl_store_config_parse(&sizes, &parsed, &why) != SL_OK) {
        return setup_refuse(self, &why);
    }
    setup.segment_bytes = parsed.global_segment_bytes;
    setup.local_buffer_bytes = parsed.local_buffer_bytes;
    return setup_carry_out(self, &setup);
}

static PyObject *setup_dict(PyObject *self, PyObject *dict)
{
    PyObject *held[DICT_TEXTS] = {NULL};
    PyObject *result = setup_dict_take(self, dict, held);
    for (int i = 0; i < DICT_TEXTS; i++) {
        Py_XDECREF(held[i]);
    }
    return result;
}

static MC_METHOD(store_setup)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    bool by_name = named == 1 && count == 0 &&
                   PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "config") == 0;
    if (count + named == 1 && (count == 1 || by_name) && PyDict_Check(args[0])) {
        PyObject *result = setup_dict(self, args[0]);
        return result != NULL ? result : setup_mismatch(names);
    }
    PyObject *objects[SETUP_ARGUMENTS_MAX] = {NULL};
    struct sl_store_setup setup;
    if (!setup_collect(args, count, names, objects) || !setup_take(objects, &setup)) {
        return setup_mismatch(names);
    }
    return setup_carry_out(self, &setup);
}

static const struct mc_call setup_dummy_call = {"setup_dummy",
                                                "int",
                                                {{"mem_pool_size", MC_NUMBER, NULL},
                                                 {"local_buffer_size", MC_NUMBER, NULL},
                                                 {"server_address", MC_TEXT, NULL}}};
static MC_METHOD(store_setup_dummy)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &setup_dummy_call, args, count, names, values)) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    int code =
        sl_store_setup_dummy(store, values[0].number, values[1].number, values[2].key.at, &why);
    PyEval_RestoreThread(unlocked);
    mc_release(&setup_dummy_call, values);
    return setup_result("setup_dummy", code, &why);
}

static const struct mc_call init_all_call = {"init_all",
                                             "int",
                                             {{"protocol", MC_TEXT, NULL},
                                              {"device_name", MC_TEXT, NULL},
                                              {"mount_segment_size", MC_NUMBER, "16777216"}}};
static MC_METHOD(store_init_all)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &init_all_call, args, count, names, values)) {
        return NULL;
    }
    const struct sl_store_setup setup = {
        .local_hostname = "localhost:12345",
        .metadata_server = "etcd://localhost:2379",
        .segment_bytes = values[2].object == NULL ? 16 * SL_MIB : values[2].number,
        .local_buffer_bytes = 16 * SL_MIB,
        .protocol = values[0].key.at,
        .rdma_devices = values[1].key.at,
        .master_server_addr = "localhost:50051",
    };
    PyObject *result = setup_carry_out(self, &setup);
    mc_release(&init_all_call, values);
    return result;
}

/* ---- what it is ---- */

static PyObject *store_close(PyObject *self, PyObject *none)
{
    struct sl_store *store = mc_store_of(self);
    (void)none;
    PyThreadState *unlocked = PyEval_SaveThread();
    int code = sl_store_close(store);
    PyEval_RestoreThread(unlocked);
    return PyLong_FromLong(code);
}

static PyObject *store_health(PyObject *self, PyObject *none)
{
    struct sl_store *store = mc_store_of(self);
    (void)none;
    PyThreadState *unlocked = PyEval_SaveThread();
    int code = sl_store_health(store);
    PyEval_RestoreThread(unlocked);
    return PyLong_FromLong(code);
}

static PyObject *store_hostname(PyObject *self, PyObject *none)
{
    char name[SL_STORE_NAME_BYTES];
    (void)none;
    sl_store_hostname(mc_store_of(self), name);
    return sl_glue_text(name);
}

/* The node's disks are read by the node: there is no such call. */
static PyObject *store_offload_reads(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyLong_FromLong(0);
}

/* ---- the type ---- */

#define FAST (METH_FASTCALL | METH_KEYWORDS)
#define METHOD(name, function, how, doc)                        \
    {                                                           \
        name, (PyCFunction)(void (*)(void))(function), how, doc \
    }
static PyMethodDef store_methods[] = {
    METHOD("setup", store_setup, FAST,
           "setup(local_hostname, metadata_server, global_segment_size, local_buffer_size, "
           "protocol, rdma_devices, master_server_addr, engine=None, enable_ssd_offload=False, "
           "ssd_offload_path='', tenant_id='default', enable_client_http_server=False, "
           "client_http_port=9300), or setup(config: dict). 0, or a negative code."),
    METHOD("setup_dummy", store_setup_dummy, FAST,
           "The front of a mooncake_client of this machine: 0, or -1."),
    METHOD("init_all", store_init_all, FAST, "setup() at fixed addresses, as old tests have it."),
    METHOD("close", store_close, METH_NOARGS, "Withdraws the segments. Always 0."),
    METHOD("health_check", store_health, METH_NOARGS,
           "0: healthy; 1: not set up; 2: the node does not answer."),
    METHOD("get_hostname", store_hostname, METH_NOARGS, "host:port, the name of the segment."),
    METHOD("get_offload_rpc_read_count", store_offload_reads, METH_NOARGS, "0: the node reads."),
    METHOD("put", mc_put, FAST, "Stores all bytes of a buffer; a key that exists is kept: 0."),
    METHOD("put_parts", mc_put_parts, FAST, "Stores the parts one behind the other."),
    METHOD("put_batch", mc_put_batch, FAST, "0, or the first code that is not."),
    METHOD("put_from", mc_put_from, FAST, "Stores what lies at an address."),
    METHOD("put_from_with_metadata", mc_put_from_with_metadata, FAST,
           "Stores metadata, then data, as one value."),
    METHOD("batch_put_from", mc_batch_put_from, FAST, "A code for each key."),
    METHOD("batch_put_from_multi_buffers", mc_batch_put_from_multi_buffers, FAST,
           "The value of a key is what lies at its addresses, one behind the other."),
    METHOD("upsert", mc_upsert, FAST, "As put; a key that exists gets the new value."),
    METHOD("upsert_parts", mc_upsert_parts, FAST, "As put_parts; replaces."),
    METHOD("upsert_batch", mc_upsert_batch, FAST, "As put_batch; replaces."),
    METHOD("upsert_from", mc_upsert_from, FAST, "As put_from; replaces."),
    METHOD("batch_upsert_from", mc_batch_upsert_from, FAST, "As batch_put_from; replaces."),
    METHOD("get", mc_get, FAST, "The value; b'' when there is none, or it cannot be read."),
    METHOD("get_batch", mc_get_batch, FAST, "As get, for each key."),
    METHOD("get_buffer", mc_get_buffer, FAST,
           "A BufferHandle of the value where it lies, or None."),
    METHOD("batch_get_buffer", mc_batch_get_buffer, FAST, "As get_buffer, for each key."),
    METHOD("get_into", mc_get_into, FAST, "Bytes that were read to an address, or a code."),
    METHOD("batch_get_into", mc_batch_get_into, FAST, "As get_into, for each key."),
    METHOD("batch_get_into_multi_buffers", mc_batch_get_into_multi_buffers, FAST,
           "Values to many addresses each: the value's bytes, or a code, for each key."),
    METHOD("get_into_ranges", mc_get_into_ranges, FAST,
           "Ranges of values into registered buffers: a result for each fragment."),
    METHOD("batch_get_session_start", mc_get_session_start, FAST,
           "Looks keys up once, to read them in parts."),
    METHOD("batch_get_into_multi_buffer_ranges", mc_get_session_read, FAST,
           "Bytes that were read of each key, or a code; -707: the lease ended."),
    METHOD("batch_get_session_end", mc_get_session_end, FAST, "0."),
    METHOD("batch_put_session_start", mc_put_session_start, FAST,
           "Takes room for values that are written in parts; -705: the key exists."),
    METHOD("batch_put_from_multi_buffer_ranges", mc_put_session_write, FAST,
           "Bytes that were written of each key, or a code."),
    METHOD("batch_put_session_end", mc_put_session_end, FAST, "Makes the values readable."),
    METHOD("batch_put_session_revoke", mc_put_session_revoke, FAST, "Gives the room back."),
    METHOD("is_exist", mc_is_exist, FAST, "1, 0, or a code. Leases."),
    METHOD("batch_is_exist", mc_batch_is_exist, FAST, "As is_exist, for each key."),
    METHOD("get_size", mc_get_size, FAST, "The value's bytes, or a code."),
    METHOD("remove", mc_remove, FAST, "0, -704, -706 when leased and not force, ..."),
    METHOD("batch_remove", mc_batch_remove, FAST, "As remove, for each key."),
    METHOD("remove_by_regex", mc_remove_by_regex, FAST,
           "How many keys in which the pattern was found were removed."),
    METHOD("remove_all", mc_remove_all, FAST, "How many were removed."),
    METHOD("batch_replica_clear", mc_batch_replica_clear, FAST,
           "Those of the keys that this process put and that were cleared."),
    METHOD("get_replica_desc", mc_get_replica_desc, FAST, "ReplicaDescriptors of a key."),
    METHOD("batch_get_replica_desc", mc_batch_get_replica_desc, FAST, "{key: descriptors}."),
    METHOD("register_buffer", mc_register_buffer, FAST, "0, or -600."),
    METHOD("unregister_buffer", mc_unregister_buffer, FAST, "0, or -600."),
    METHOD("alloc_from_mem_pool", mc_alloc_from_mem_pool, FAST,
           "Of a dummy: the address of new shared memory; 0: failed."),
    METHOD("mount_segment", mc_mount_segment, FAST, "{'ret': 0 or a code, 'segment_ids': [...]}."),
    METHOD("unmount_segment", mc_unmount_segment, FAST, "0, or a code."),
    METHOD("allocate_and_mount_segment", mc_allocate_and_mount_segment, FAST,
           "{'ret': ..., 'segment_ids': [...], 'allocated_size': ...}."),
    METHOD("unmount_and_free_segment", mc_unmount_segment, FAST, "As unmount_segment."),
    METHOD("unmount_local_disk_segment", mc_unmount_local_disk_segment, FAST,
           "-1010: disks are the node's."),
    {NULL, NULL, 0, NULL},
};
static PyType_Slot store_slots[] = {
    {Py_tp_doc, "A store with Mooncake's semantics on a node of Sluice."},
    {Py_tp_new, (void *)store_new},
    {Py_tp_init, (void *)store_init},
    {Py_tp_dealloc, (void *)store_dealloc},
    {Py_tp_methods, store_methods},
    {0, NULL},
};
PyType_Spec mc_store_spec = {
    .name = "mooncake.store.MooncakeDistributedStore",
    .basicsize = sizeof(struct mc_store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = store_slots,
};
