/* client/python/client.cpp - the type Client: open, close, one object at a time. */
#include "client/python/internal.hpp"

namespace py
{

constexpr int get_tries_max = 16; /* if each read finds a value of another size */

/* ---- life ---- */

/* {"op_timeout": "1s"} as "op_timeout=1s". */
static std::vector<std::string> settings_of(PyObject *settings)
{
    std::vector<std::string> pairs;
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    if (settings == nullptr || settings == Py_None) {
        return pairs;
    }
    if (!PyDict_Check(settings)) {
        fail(PyExc_TypeError, "settings: a dict is needed");
    }
    while (PyDict_Next(settings, &at, &name, &value) != 0) {
        const ref held = share(name), other = share(value); /* str() may change the dict */
        pairs.emplace_back(text(own(PyUnicode_FromFormat("%S=%S", name, value)).get()));
    }
    return pairs;
}

static ref client_new(PyTypeObject &type, text_or_none instance, text_or_none config, timeout wait,
                      bool read_only, PyObject *settings)
{
    sl_client_options options = {};
    const std::vector<std::string> pairs = settings_of(settings);
    std::vector<const char *> texts = room<const char *>(pairs.size()); /* up to a NULL */
    for (size_t i = 0; i < pairs.size(); i++) {
        texts[i] = pairs[i].c_str();
    }
    options.api_version = SLUICE_API_VERSION;
    options.instance = instance;
    options.config = config;
    options.timeout_ns = wait;
    options.read_only = read_only;
    options.settings = pairs.empty() ? nullptr : texts.data();
    ref made = make<client>(&type); /* first: if this fails, no client is left open */
    sl_client *opened = nullptr;
    ask([&](sl_error *why) { return sl_client_open(&options, &opened, why); });
    of<client>(made.get()).started(opened);
    return made;
}

/* ---- one object ---- */

static void client_put(client &self, const key &name, const readable &value, timeout wait)
{
    self.ask(
        [&](sl_error *why) { return sl_put(self.at, name, value.at(), value.size(), wait, why); });
}

static uint64_t client_get_into(client &self, const key &name, const writable &to, timeout wait)
{
    uint64_t length_bytes = 0;
    self.ask([&](sl_error *why) {
        return sl_get(self.at, name, {to.at(), to.size()}, &length_bytes, wait, why);
    });
    return length_bytes;
}

/* Gets the current size of a value. If only another node has it, a read into an empty buffer
 * fetches it and reports the size. */
static sl_err size_ask(sl_client *at, sl_object_key name, uint64_t timeout_ns, uint64_t *out,
                       sl_error *why)
{
    char nothing;
    sl_err err = sl_size(at, name, out);
    if (err == SL_ERR_NOT_FOUND) {
        err = sl_get(at, name, {&nothing, 0}, out, timeout_ns, why);
    }
    return err == SL_ERR_LIMIT && *out > 0 ? SL_OK : err;
}

ref value_get(client &self, sl_object_key name, uint64_t timeout_ns)
{
    uint64_t length_bytes = 0;
    for (int tries = 0; tries < get_tries_max; tries++) {
        ask([&](sl_error *why) { return size_ask(self.at, name, timeout_ns, &length_bytes, why); });
        ref value = bytes(nullptr, length_bytes);
        const sl_buffer room = {PyBytes_AsString(value.get()), length_bytes};
        sl_error why = {};
        sl_err err = SL_OK;
        {
            const unlocked now;
            err = sl_get(self.at, name, room, &length_bytes, timeout_ns, &why);
        }
        if (err == SL_OK) { /* shorter: removed and put again meanwhile */
            return length_bytes == room.length_bytes ? std::move(value)
                                                     : bytes(room.at, length_bytes);
        }
        if (err != SL_ERR_LIMIT || length_bytes <= room.length_bytes) {
            refuse(err, &why);
        }
    }
    refuse(SL_ERR_BUSY, "the value was replaced each time it was read");
}

static ref client_get(client &self, const key &name, timeout wait)
{
    const use here(self);
    return value_get(self, name, wait);
}

static ref client_get_pinned(client &self, const key &name, timeout wait)
{
    const use here(self);
    sl_view view = {};
    ask([&](sl_error *why) { return sl_get_pinned(self.at, name, &view, wait, why); });
    return view_new(self, &view);
}

/* ---- the type ---- */

void client_add(PyObject *module)
{
    static methods functions;
    functions = {
        METHOD("close", "()", close_it<client>,
               "Refuses new calls. Views, engines and running calls keep what they use."),
        METHOD("put", "(key, value, *, timeout=None)", client_put,
               "Stores the bytes of a contiguous buffer, 1 byte to 1 GiB. If the key exists, "
               "the call succeeds and changes nothing. Store a larger value, such as a tensor, "
               "in parts, each under its own key."),
        METHOD("get", "(key, *, timeout=None)", client_get,
               "Returns a copy of the value as bytes."),
        METHOD("get_into", "(key, buffer, *, timeout=None)", client_get_into,
               "Copies the value into a writable contiguous buffer and returns its size. "
               "LimitError: the buffer is too small."),
        METHOD("get_pinned", "(key, *, timeout=None)", client_get_pinned,
               "Returns a View of the value in shared memory, without a copy."),
        METHOD("remove", "(key, *, timeout=None)", (bound<sl_remove, client, key, timeout>::it),
               "Removes the value from this node."),
        METHOD("remove_all", "(*, timeout=None)", (bound<sl_remove_all, client, timeout>::it),
               "Removes all objects of this node."),
        METHOD("flush", "(*, timeout=None)", (bound<sl_flush, client, timeout>::it),
               "Waits until all values stored so far are durable. UnsupportedError: no disk."),
        METHOD("event_fd", "()", (asked<sl_client_event_fd, int, client>::it),
               "Returns a descriptor that is readable when ops of this client may have ended; "
               "ended_ops() returns these. Only poll it: the client reads and closes it."),
        WITH(enter_it<client>, leave_it<client>),
    };
    look_methods(functions);
    batch_methods(functions);
    pages_methods(functions);
    hint_methods(functions);
    pool_methods(functions);
    handover_methods(functions);
    contribution_methods(functions);
    engine_methods(functions);
    ended_methods(functions);
    functions.push_back(last_method);
    static PyGetSetDef attributes[] = {
        attribute<known<sl_client_instance, client>>("instance", "The node's name."),
        attribute<is_closed<client>>("closed", "Whether close() was called."),
        last_attribute,
    };
    static const char doc[] =
        "Client(instance=None, *, config=None, timeout=None, read_only=False, "
        "settings=None)\n--\n\n"
        "A client that is attached to a node of this machine. Any thread may call it; a "
        "forked process opens its own. Timeouts are in seconds; None means the node's "
        "op_timeout.";
    kinds.client = add_type<client>(module, "sluice.Client", doc, functions.data(), attributes,
                                    {maker<client_new>(doc)});
}

} // namespace py
