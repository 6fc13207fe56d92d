/* client/python/batch.cpp - methods of Client for many objects in one call. */
#include "client/python/internal.hpp"

namespace py
{

static std::vector<sl_buffer> places_of(const std::vector<buffer> &buffers)
{
    std::vector<sl_buffer> places = room<sl_buffer>(buffers.size());
    for (size_t i = 0; i < buffers.size(); i++) {
        places[i] = {buffers[i].at(), buffers[i].size()};
    }
    return places;
}

static ref put_batch(client &self, keys &names, PyObject *values, timeout wait)
{
    const std::vector<buffer> held = buffers_of(values, names.count, PyBUF_SIMPLE);
    const std::vector<sl_buffer> from = places_of(held);
    self.ask([&](sl_error *why) {
        return sl_put_batch(self.at, names.at.data(), from.data(), names.count, names.codes.data(),
                            wait, why);
    });
    return codes_list(names.codes.data(), names.count);
}

/* ---- reading ---- */

static ref get_batch_into(client &self, keys &names, PyObject *targets, timeout wait)
{
    const std::vector<buffer> held = buffers_of(targets, names.count, PyBUF_WRITABLE);
    const std::vector<sl_buffer> into = places_of(held);
    std::vector<uint64_t> lengths = room<uint64_t>(names.count);
    self.ask([&](sl_error *why) {
        return sl_get_batch(self.at, names.at.data(), into.data(), names.count, lengths.data(),
                            names.codes.data(), wait, why);
    });
    return list_of(names.count, [&](size_t i) {
        return names.codes[i] == SL_OK ? static_cast<int64_t>(lengths[i])
                                       : -static_cast<int64_t>(names.codes[i]);
    });
}

/* Whether a read of a batch found its value; raises for all codes but OK and NOT_FOUND. */
static bool is_there(sl_err code)
{
    if (code != SL_OK && code != SL_ERR_NOT_FOUND) {
        refuse(code, static_cast<const sl_error *>(nullptr));
    }
    return code == SL_OK;
}

static ref get_pinned_batch(client &self, keys &names, timeout wait)
{
    std::vector<sl_view> views = room<sl_view>(names.count);
    const use here(self);
    ask([&](sl_error *why) {
        return sl_get_pinned_batch(self.at, names.at.data(), views.data(), names.count,
                                   names.codes.data(), wait, why);
    });
    size_t taken = 0;
    try {
        return list_of(names.count, [&](size_t i) {
            const bool there = is_there(names.codes[i]);
            taken = i + 1;
            return there ? view_new(self, &views[i]) : none();
        });
    } catch (const raised &) { /* releases pins that no View owns yet */
        for (; taken < names.count; taken++) {
            if (names.codes[taken] == SL_OK) {
                sl_view_release(self.at, &views[taken]);
            }
        }
        throw;
    }
}

/* A value that is missing here may come from another node, and one that did not fit was replaced
 * meanwhile. Both are read once more, one by one. */
static ref copy_settle(client &self, sl_object_key name, sl_err code, uint64_t length_bytes,
                       ref &&copy, uint64_t timeout_ns)
{
    if (code == SL_OK && static_cast<Py_ssize_t>(length_bytes) == PyBytes_Size(copy.get())) {
        return std::move(copy);
    }
    if (code != SL_OK && (code != SL_ERR_LIMIT || length_bytes == 0)) {
        (void)is_there(code);
        return none();
    }
    try {
        return value_get(self, name, timeout_ns);
    } catch (const raised &) {
        if (PyErr_ExceptionMatches(kinds.errors[SL_ERR_NOT_FOUND]) == 0) {
            throw;
        }
        PyErr_Clear();
        return none();
    }
}

/* Reads the sizes first, then all values in one call. */
static ref get_batch(client &self, keys &names, timeout wait)
{
    std::vector<uint64_t> lengths = room<uint64_t>(names.count);
    std::vector<sl_buffer> into = room<sl_buffer>(names.count);
    std::vector<ref> copies = room<ref>(names.count);
    const use here(self);
    {
        const unlocked now;
        for (uint32_t i = 0; i < names.count; i++) {
            (void)sl_size(self.at, names.at[i], &lengths[i]); /* else 0 */
        }
    }
    for (uint32_t i = 0; i < names.count; i++) {
        copies[i] = bytes(nullptr, lengths[i]);
        into[i] = {PyBytes_AsString(copies[i].get()), lengths[i]};
    }
    ask([&](sl_error *why) {
        return sl_get_batch(self.at, names.at.data(), into.data(), names.count, lengths.data(),
                            names.codes.data(), wait, why);
    });
    return list_of(names.count, [&](size_t i) {
        return copy_settle(self, names.at[i], names.codes[i], lengths[i], std::move(copies[i]),
                           wait);
    });
}

/* ---- the rest ---- */

static ref exists_batch(client &self, keys &names)
{
    self.ask([&](sl_error *) {
        return sl_exists_batch(self.at, names.at.data(), names.count, names.codes.data());
    });
    return list_of(names.count, [&](size_t i) { return is_there(names.codes[i]); });
}

template <auto call> static ref codes_call(client &self, keys &names, timeout wait)
{
    self.ask([&](sl_error *why) {
        return call(self.at, names.at.data(), names.count, names.codes.data(), wait, why);
    });
    return codes_list(names.codes.data(), names.count);
}

static sl_err remove_batch(sl_client *client, const sl_object_key *keys, uint32_t count,
                           sl_err *codes, uint64_t timeout_ns, sl_error *why)
{
    return sl_remove_batch(client, keys, count, nullptr, codes, timeout_ns, why);
}

void batch_methods(methods &client)
{
    add(client,
        METHOD("put_batch", "(keys, values, *, timeout=None)", put_batch,
               "Stores at most 65,536 values and returns a code for each: 0: stored, or the "
               "key existed; INVALID: not a key, or a value that is empty or larger than 1 GiB."),
        METHOD("get_batch", "(keys, *, timeout=None)", get_batch,
               "Returns bytes for each key, None for a miss; any other failure is raised."),
        METHOD("get_batch_into", "(keys, buffers, *, timeout=None)", get_batch_into,
               "Returns for each key the number of bytes read, or minus the code."),
        METHOD("get_pinned_batch", "(keys, *, timeout=None)", get_pinned_batch,
               "Returns a View for each key, None for a miss; any other failure is raised."),
        METHOD("exists_batch", "(keys)", exists_batch, "Returns a bool for each key."),
        METHOD("remove_batch", "(keys, *, timeout=None)", codes_call<remove_batch>,
               "Removes the keys from this node. Returns a code for each: 0, or 1 if missing."),
        METHOD("prefetch", "(keys, *, timeout=None)", codes_call<sl_prefetch_batch>,
               "Reads values from this node's disk into memory and waits. Returns a code for "
               "each: 0: read, EXISTS: already in memory, NOT_FOUND, NO_SPACE, ..."));
}

} // namespace py
