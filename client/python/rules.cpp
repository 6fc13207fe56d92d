/* client/python/rules.cpp - functions that need no client, and contributions of a Client. */
#include "client/python/internal.hpp"

#include <algorithm>

namespace py
{

static const char *pool_creator(module &, bool profiling, uint64_t host_blocks, bool storage,
                                bool split)
{
    const sl_pool_situation situation = {profiling, host_blocks, storage, split};
    return sl_pool_owner_decide(&situation) == SL_POOL_BY_ENGINE ? "engine" : "sluice";
}

static uint64_t required_bytes(module &, PyObject *buffers)
{
    const ref list = own(PySequence_List(buffers));
    std::vector<sl_pool_buffer> spans;
    for (Py_ssize_t i = 0; i < PyList_Size(list.get()); i++) {
        PyObject *pair = PyList_GetItem(list.get(), i);
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
            fail(PyExc_TypeError, "pairs of an address and a length are needed");
        }
        spans.push_back({u64(PyTuple_GetItem(pair, 0)), u64(PyTuple_GetItem(pair, 1))});
    }
    const size_t count = std::min<size_t>(spans.size(), SL_POOL_BUFFERS_MAX + 1);
    uint64_t sum = 0;
    spans.push_back({}); /* so that it has an address */
    ask([&](sl_error *why) {
        return sl_pool_required_bytes(spans.data(), static_cast<uint32_t>(count), &sum, why);
    });
    return sum;
}

static void set_origin(module &, text_or_none request, text_or_none traceparent)
{
    const sl_trace_context origin = {request, traceparent};
    ask([&](sl_error *why) { return sl_trace_context_set(&origin, why); });
}

static uint64_t team_number(module &, PyObject *name)
{
    if (PyUnicode_Check(name)) {
        const std::string_view given = text(name);
        return sl_team_number(given.data(), given.size());
    }
    const readable given(name);
    return sl_team_number(given.at(), given.size());
}

static uint32_t look_prefix(module &, PyObject *sequence, uint32_t count)
{
    sl_prefix_class classes[pools_max];
    const ref list = own(PySequence_List(sequence));
    const auto number = static_cast<size_t>(PyList_Size(list.get()));
    if (number < 1 || number > pools_max) {
        fail(PyExc_ValueError, "look_prefix: 1 to 8 classes");
    }
    for (size_t i = 0; i < number; i++) {
        PyObject *pair = PyList_GetItem(list.get(), static_cast<Py_ssize_t>(i));
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2 ||
            !PyBytes_Check(PyTuple_GetItem(pair, 0))) {
            fail(PyExc_TypeError, "pairs of bytes and a window are needed");
        }
        PyObject *bits = PyTuple_GetItem(pair, 0);
        if (static_cast<uint64_t>(PyBytes_Size(bits)) < (uint64_t{count} + 7) / 8) {
            fail(PyExc_ValueError, "look_prefix: a bitmap is too short");
        }
        classes[i] = {reinterpret_cast<const unsigned char *>(PyBytes_AsString(bits)),
                      u32(PyTuple_GetItem(pair, 1))};
    }
    return sl_prefix_match_hybrid(classes, static_cast<uint32_t>(number), count);
}

static sl_handover_mode handover_mode(module &)
{
    sl_handover_mode mode = SL_HANDOVER_DIRECT;
    sl_error why = {};
    /* With the GIL held, so that os.environ cannot change the environment meanwhile. */
    if (const sl_err err = sl_handover_mode_get(&mode, &why); err != SL_OK) {
        refuse(err, &why);
    }
    return mode;
}

void rules_methods(methods &module)
{
    add(module,
        METHOD("handover_mode", "()", handover_mode,
               "Returns HANDOVER_BY_STORAGE or HANDOVER_DIRECT, as FD_PD_TRANSFER_VIA_STORAGE "
               "selects. ConfigError: the variable has another value."),
        METHOD("look_prefix", "(classes, count)", look_prefix,
               "Returns the longest prefix, of at most count blocks, that all classes of pools "
               "have. classes: pairs of a bitmap from Engine.look_there and a window."),
        METHOD("set_origin", "(request=None, traceparent=None)", set_origin,
               "Sets the origin of ops that this thread starts from now on. request: the "
               "engine's name of its request, by which sluicectl explain --request finds the "
               "ops. traceparent: a W3C trace context; python -m sluice.otel exports the ops "
               "as its spans."),
        METHOD("team_number", "(name)", team_number,
               "Returns a team number for a str or bytes that only the processes of the team "
               "share, of at least 16 bytes."),
        METHOD("pool_creator", "(*, profiling=False, host_blocks=0, storage=False, split=False)",
               pool_creator,
               "Returns which side makes the device pools of a deployment: 'engine' or 'sluice'."),
        METHOD("required_bytes", "(buffers)", required_bytes,
               "Returns how many bytes a store in a separate process has to map: the sum over "
               "distinct buffers, pairs of an address and a length. InvalidError: two of them "
               "overlap."));
}

/* ---- contributions: of the client ---- */

static void contribute(client &self, const char *name, uint64_t length_bytes, timeout wait)
{
    if (length_bytes == 0) {
        refuse(SL_ERR_INVALID, "contribute: length is 0");
    }
    self.ask([&](sl_error *why) {
        return sl_segment_mount(self.at, name, length_bytes, false, wait, why);
    });
}

void contribution_methods(methods &of_client)
{
    add(of_client,
        METHOD("contribute", "(name, length, *, timeout=None)", contribute,
               "Contributes memory to the node, under a name of its own, until withdraw() or "
               "close(). UnsupportedError: the node accepts none."),
        METHOD("withdraw", "(name, *, timeout=None)",
               (bound<sl_segment_unmount, client, const char *, timeout>::it),
               "Removes a contribution from the node; waits until its memory is no longer used."));
}

} // namespace py
