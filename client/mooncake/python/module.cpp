/* client/mooncake/python/module.cpp - the module mooncake._store: the native half of the store's
 * class, BufferHandle, and memory. The other half is mooncake/store.py. */
#include "client/mooncake/python/internal.hpp"

#include <cerrno>
#include <string>

namespace mc
{

/* ---- BufferHandle: a value in shared memory, read-only, or a writable copy ---- */

struct handle {
    sl_store_buffer *at = nullptr;

    handle() = default;
    handle(const handle &) = delete;
    ~handle() /* memoryviews keep the object alive, so none is left */
    {
        const py::unlocked now;
        sl_store_buffer_release(&at);
    }
};
static PyTypeObject *handle_type;

py::ref buffer_or_none(sl_store_buffer *&buffer)
{
    if (buffer == nullptr) {
        return py::none();
    }
    py::ref made = py::make<handle>(handle_type);
    py::of<handle>(made.get()).at = std::exchange(buffer, nullptr);
    return made;
}

static uint64_t handle_ptr(handle &self)
{
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(sl_store_buffer_at(self.at)));
}

static uint64_t handle_size(handle &self)
{
    return sl_store_buffer_length(self.at);
}

static Py_ssize_t handle_length(PyObject *self) noexcept
{
    return static_cast<Py_ssize_t>(handle_size(py::of<handle>(self)));
}

/* PyBuffer_FillInfo refuses PyBUF_WRITABLE for a value in shared memory, which others read. Items
 * are signed, as in Mooncake's handles. */
static int handle_view(PyObject *object, Py_buffer *view, int flags) noexcept
{
    static char format[] = "b";
    handle &self = py::of<handle>(object);
    const int failed =
        PyBuffer_FillInfo(view, object, const_cast<void *>(sl_store_buffer_at(self.at)),
                          handle_length(object), !sl_store_buffer_is_copy(self.at), flags);
    if (failed == 0 && view->format != nullptr) {
        view->format = format;
    }
    return failed;
}

/* ---- the store ---- */

store::store()
{
    if (sl_store_create(&at) != SL_OK) {
        throw std::bad_alloc();
    }
}

store::~store()
{
    const py::unlocked now;
    sl_store_destroy(&at);
}

/* Ignores arguments: they are for the __init__ of a derived type. */
static PyObject *store_new(PyTypeObject *type, PyObject *, PyObject *) noexcept
{
    return py::guarded([&] { return py::make<store>(type).release(); });
}

struct descriptor {
    int it;

    explicit descriptor(PyObject *given) : it(static_cast<int>(PyLong_AsLong(given)))
    {
        py::check(PyErr_Occurred() == nullptr);
    }
};

/* Returns (code of sl_err, reason; with SL_OK how the node is degraded, or ""). */
static py::ref store_setup(store &self, const char *instance, const char *name,
                           const descriptor &port, uint64_t segment_bytes,
                           uint64_t local_buffer_bytes, const char *tenant, bool dummy)
{
    const struct sl_store_setup setup = {.instance = instance,
                                         .name = name,
                                         .port_fd = port.it,
                                         .dummy = dummy,
                                         .segment_bytes = segment_bytes,
                                         .local_buffer_bytes = local_buffer_bytes,
                                         .tenant = tenant};
    sl_error why = {};
    sl_err err = SL_OK;
    {
        const py::unlocked now;
        err = sl_store_setup(self.at, &setup, &why);
    }
    return py::tuple(err, static_cast<const char *>(why.text));
}

static std::string store_hostname(store &self)
{
    char name[SL_STORE_NAME_BYTES];
    sl_store_hostname(self.at, name);
    return name;
}

/* ---- existence, size, removal ---- */

static int is_exist(store &self, key &name)
{
    const py::unlocked now;
    int code = SL_STORE_INVALID;
    sl_store_exist(self.at, &name, 1, &code);
    return code;
}

static py::ref batch_is_exist(store &self, const keys &names)
{
    return answers<int>(names.count, [&](uint32_t first, uint32_t count, int *to) {
        sl_store_exist(self.at, names.at.get() + first, count, to);
    });
}

static int64_t get_size(store &self, const key &name)
{
    const py::unlocked now;
    return sl_store_size(self.at, name);
}

static int remove(store &self, key &name, const flag &force)
{
    const py::unlocked now;
    int code = SL_STORE_INVALID;
    sl_store_remove(self.at, &name, 1, force.it, &code);
    return code;
}

static py::ref batch_remove(store &self, const keys &names, const flag &force)
{
    return answers<int>(names.count, [&](uint32_t first, uint32_t count, int *to) {
        sl_store_remove(self.at, names.at.get() + first, count, force.it, to);
    });
}

static int64_t remove_by_regex(store &self, const key &pattern, const flag &force)
{
    const py::unlocked now;
    return sl_store_remove_matching(self.at, &pattern, force.it);
}

static int64_t remove_all(store &self, const flag &force)
{
    const py::unlocked now;
    return sl_store_remove_matching(self.at, nullptr, force.it);
}

/* Returns for each key whether it was cleared. */
static py::ref replica_clear(store &self, const keys &names, const char *segment)
{
    return answers<bool>(names.count, [&](uint32_t first, uint32_t count, bool *to) {
        sl_store_replica_clear(self.at, names.at.get() + first, count, segment, to);
    });
}

/* Returns for each key (in memory, on disk, size in bytes, segment). */
static py::ref replicas(store &self, const keys &names)
{
    auto found = std::make_unique<sl_store_replica[]>(names.count);
    in_batches(names.count, found.get(), [&](uint32_t first, uint32_t count, sl_store_replica *to) {
        (void)sl_store_replicas(self.at, names.at.get() + first, count, to);
    });
    return py::list_of(names.count, [&](size_t i) {
        const sl_store_replica &one = found[i];
        return py::tuple(one.in_memory, one.on_disk, one.length_bytes,
                         static_cast<const char *>(one.segment));
    });
}

/* ---- memory ---- */

static uint64_t memory_alloc(py::module &, uint64_t length_bytes)
{
    const py::unlocked now;
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(sl_store_memory_alloc(length_bytes)));
}

static int memory_free(py::module &, uint64_t addr)
{
    const py::unlocked now;
    return sl_store_memory_free(address(addr));
}

static uint64_t alloc_func_addr(py::module &)
{
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&sl_store_torch_alloc));
}

static uint64_t free_func_addr(py::module &)
{
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&sl_store_torch_free));
}

/* ---- the module ---- */

static const PyMethodDef methods_end = {nullptr, nullptr, 0, nullptr};

static void store_methods(std::vector<PyMethodDef> &out)
{
    out = {
        MC_METHOD("_setup", "(instance, name, port, segment_bytes, local_bytes, tenant, dummy)",
                  store_setup, ""),
        MC_METHOD("_contribute", "(name, size)", plain<sl_store_contribute>::it, ""),
        MC_METHOD("_withdraw", "(name)", plain<sl_store_withdraw>::it, ""),
        MC_METHOD("_replica_clear", "(keys, segment_name)", replica_clear, ""),
        MC_METHOD("_replicas", "(keys)", replicas, ""),
        MC_METHOD("close", "()", plain<sl_store_close>::it,
                  "Withdraws the segments. Always returns 0."),
        MC_METHOD("health_check", "()", plain<sl_store_health>::it,
                  "0: healthy; 1: not set up; 2: the node does not answer."),
        MC_METHOD("get_hostname", "()", store_hostname,
                  "Returns host:port, the name of the segment."),
        MC_METHOD("is_exist", "(key)", is_exist, "Returns 1, 0, or a code. Leases the key."),
        MC_METHOD("batch_is_exist", "(keys)", batch_is_exist, "As is_exist, for each key."),
        MC_METHOD("get_size", "(key)", get_size, "Returns the value's size in bytes, or a code."),
        MC_METHOD("remove", "(key, force=False)", remove,
                  "Returns 0, -704, -706 if the key is leased and force is False, ..."),
        MC_METHOD("batch_remove", "(keys, force=False)", batch_remove, "As remove, for each key."),
        MC_METHOD(
            "remove_by_regex", "(regex_pattern, force=False)", remove_by_regex,
            "Removes the keys in which the pattern is found; returns their number, or a code."),
        MC_METHOD("remove_all", "(force=False)", remove_all,
                  "Removes all keys; returns their number, or a code."),
        MC_METHOD("register_buffer", "(buffer_ptr, size)", plain<sl_store_register>::it,
                  "0, or -600."),
        MC_METHOD("unregister_buffer", "(buffer_ptr)", plain<sl_store_unregister>::it,
                  "0, or -600."),
        MC_METHOD("alloc_from_mem_pool", "(size)", plain<sl_store_pool_alloc>::it,
                  "Dummy only: allocates shared memory and returns its address; 0: failed."),
    };
    write_methods(out);
    read_methods(out);
    out.push_back(methods_end);
}

static int exec(PyObject *module) noexcept
{
    return py::guarded([&] {
        static std::vector<PyMethodDef> of_store; /* referenced by the type */
        static PyMethodDef of_handle[] = {
            METHOD("ptr", "()", handle_ptr,
                   "Returns the address; writable if memoryview(handle) is not read-only."),
            METHOD("size", "()", handle_size, "Returns the size in bytes."), methods_end};
        if (of_store.empty()) {
            store_methods(of_store);
        }
        (void)py::add_type<store>(module, "mooncake._store.Store", "", of_store.data(), nullptr,
                                  {{Py_tp_new, reinterpret_cast<void *>(store_new)}},
                                  Py_TPFLAGS_BASETYPE);
        handle_type = py::add_type<handle>(
            module, "mooncake.store.BufferHandle",
            "A value in shared memory, read-only, or a copy if no pins were left: "
            "bytes(handle), memoryview(handle), torch.frombuffer(handle). It stays as long "
            "as the handle or a view of it.",
            of_handle, nullptr,
            {{Py_bf_getbuffer, reinterpret_cast<void *>(handle_view)},
             {Py_sq_length, reinterpret_cast<void *>(handle_length)}});
        py::check(PyModule_AddStringConstant(module, "__version__", SL_VERSION) == 0 &&
                  PyModule_AddIntConstant(module, "EXISTS", SL_ERR_EXISTS) == 0 &&
                  PyModule_AddIntConstant(module, "UNREACHABLE", SL_ERR_UNREACHABLE) == 0);
        return 0;
    });
}

} // namespace mc

PyMODINIT_FUNC PyInit__store(); /* CPython finds it by name */
PyMODINIT_FUNC PyInit__store()
{
    static PyMethodDef functions[] = {
        METHOD("memory_alloc", "(size)", mc::memory_alloc, ""),
        METHOD("memory_free", "(ptr)", mc::memory_free, ""),
        METHOD("get_alloc_func_addr", "()", mc::alloc_func_addr,
               "Address of void *(ssize_t bytes, int device, void *stream), for torch's pluggable "
               "allocator."),
        METHOD("get_free_func_addr", "()", mc::free_func_addr,
               "Address of void (void *at, ssize_t bytes, int device, void *stream)."),
        mc::methods_end};
    static PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void *>(mc::exec)},
                                       {0, nullptr}};
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                     "mooncake._store",
                                     "The native half of mooncake.store.",
                                     0,
                                     functions,
                                     slots,
                                     nullptr,
                                     nullptr,
                                     nullptr};
    return PyModuleDef_Init(&definition);
}
